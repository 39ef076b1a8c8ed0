#!/bin/sh
# Creates the secrets that compose.yaml mounts, without changing files that exist. Keep a copy of platform_seal_key and
# platform_key_pepper elsewhere: without them a backup of the database cannot be read.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets

# `put NAME` writes standard input to the secret NAME, unless it exists.
put() {
  if [ -e "secrets/$1" ]; then
    cat >/dev/null
  else
    tr -d '\n' >"secrets/$1.new"
    # The servers run as an unprivileged user in their containers.
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
