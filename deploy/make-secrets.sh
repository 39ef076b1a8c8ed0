#!/bin/sh
# Makes the secrets that compose.yaml mounts, once: a file that is there stays as it is. Keep a copy of platform_seal_key and
# platform_key_pepper somewhere else: a backup of the database cannot be read without them.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets

# `put NAME` writes standard input to the secret NAME, unless there is one.
put() {
  if [ -e "secrets/$1" ]; then
    cat >/dev/null
  else
    tr -d '\n' >"secrets/$1.new"
    # The servers run as an unprivileged user of their containers.
    chmod 0444 "secrets/$1.new"
    mv "secrets/$1.new" "secrets/$1"
  fi
}

openssl rand -hex 24 | put database_password
password=$(cat secrets/database_password)
for side in platform partner; do
  printf 'postgres://duebridge:%s@database:5432/duebridge_%s' "$password" "$side" | put "${side}_database_url"
  openssl rand -hex 32 | put "${side}_admin_key"
done
openssl rand -base64 32 | put platform_seal_key
openssl rand -base64 32 | put platform_key_pepper
openssl rand -hex 32 | put partner_key
