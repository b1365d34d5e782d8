#!/bin/sh
# Creates the file system of the container image: two binaries, the public certificate
# authorities, a user, and directories:
#
#   packaging/container-root.sh BIN ROOT      (BIN: directory with nsqd and nsqctl)
#
# The data directory belongs to the user if root runs this.
set -eu
bin=$1 root=$2 user=65532
cd "$(dirname "$0")/.."
mkdir -p "$root/usr/bin" "$root/etc/ssl/certs" "$root/etc/lockstep" "$root/var/lib/lockstep" "$root/tmp"
cp "$bin/nsqd" "$bin/nsqctl" "$root/usr/bin/"
cp packaging/nsqd.toml "$root/etc/lockstep/"
cp LICENSE "$root/LICENSE"
# Auth services and an external etcd may have certificates of public authorities.
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
echo "nsqd:x:$user:$user:nsqd:/var/lib/lockstep:/sbin/nologin" >"$root/etc/passwd"
echo "nsqd:x:$user:" >"$root/etc/group"
echo "hosts: files dns" >"$root/etc/nsswitch.conf"
chmod 1777 "$root/tmp"
chmod 0700 "$root/var/lib/lockstep"
[ "$(id -u)" != 0 ] || chown "$user:$user" "$root/var/lib/lockstep"
