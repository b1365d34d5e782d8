#!/bin/sh
# Completes a directory with binaries, as the source of archives and packages:
#
#   packaging/stage.sh DIR VERSION       (DIR/bin/nsqd, DIR/bin/nsqctl of any system)
#
# An nsqctl of this machine writes manual pages and completions. SOURCE_DATE_EPOCH is their
# date.
set -eu
dir=$(cd "$1" && pwd) version=$2
go=${GO:-go}
cd "$(dirname "$0")/.."
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

mkdir -p "$dir/man" "$dir/completions" "$dir/etc" "$dir/doc"
ctl=$(mktemp -d)
trap 'rm -rf "$ctl"' EXIT
CGO_ENABLED=0 "$go" build -o "$ctl/nsqctl" ./cmd/nsqctl
"$ctl/nsqctl" man "$dir/man" --product-version "$version"
gzip -9nf "$dir"/man/*
"$ctl/nsqctl" completion bash >"$dir/completions/nsqctl"
"$ctl/nsqctl" completion zsh >"$dir/completions/_nsqctl"
"$ctl/nsqctl" completion fish >"$dir/completions/nsqctl.fish"
cp packaging/nsqd.toml "$dir/etc/"
cp LICENSE README.md CHANGELOG.md docs/*.md "$dir/doc/"
cp -R docs/guide docs/operations docs/reference "$dir/doc/"
cp -R contrib "$dir/"
