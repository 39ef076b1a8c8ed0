#!/bin/sh
# Makes the image that our Dockerfile starts from out of Debian's packages and the Node of this repository, where no registry of
# images can be reached. It stands in for node:24-alpine: the same programs and the same user, on another C library.
#
#   test/image/debian-base.sh docker.io/library/node:24-alpine
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
debootstrap --variant=minbase "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$folder/root"
rm -f "$folder"/root/var/cache/apt/archives/*.deb
cp -L "$root/node_modules/node/bin/node" "$folder/root/usr/local/bin/node"
mkdir -p "$folder/root/usr/local/lib/node_modules" "$folder/root/usr/local/etc" "$folder/root/etc/ssl/certs"
cp -r "$(npm root --global)/npm" "$folder/root/usr/local/lib/node_modules/npm"
for name in npm npx; do
  ln -s "../lib/node_modules/npm/bin/$name-cli.js" "$folder/root/usr/local/bin/$name"
done
# npm trusts what this machine trusts, as behind a proxy that ends TLS.
cp -L /etc/ssl/certs/ca-certificates.crt "$folder/root/etc/ssl/certs/"
echo 'cafile=/etc/ssl/certs/ca-certificates.crt' >"$folder/root/usr/local/etc/npmrc"
chroot "$folder/root" groupadd --gid 1000 node
chroot "$folder/root" useradd --uid 1000 --gid node --create-home node
cat >"$folder/Dockerfile" <<'EOF'
FROM scratch
COPY root /
CMD ["node"]
EOF
podman build --tag "$1" "$folder"
