#!/bin/sh
# Builds nsqd and nsqctl of this checkout for one system:
#
#   packaging/build.sh OUT GOOS GOARCH VERSION
#
# Two builds of one commit by one version of Go are equal, byte by byte, at any path
# of the checkout: the build uses no C compiler, no path, no time and no environment
# variable. The commit is in the binary (go version -m).
set -eu
out=$1 os=$2 arch=$3 version=$4
go=${GO:-go}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."

case $version in
'' | *[!0-9A-Za-z.+~-]*) echo "build.sh: a version such as 1.2.3 or 1.3.0-rc1, not \"$version\"" >&2; exit 2 ;;
esac
# The lowest instruction sets, so that the binaries run on every processor.
env -u GOFLAGS -u GOEXPERIMENT -u GODEBUG CGO_ENABLED=0 GOOS="$os" GOARCH="$arch" GOAMD64=v1 GOARM64=v8.0 GOWORK=off \
	"$go" build -trimpath -buildvcs="${BUILDVCS:-true}" -mod=readonly \
	-ldflags "-s -w -X github.com/lockstepmq/lockstep/internal/api.product=$version" \
	-o "$out/" ./cmd/nsqd ./cmd/nsqctl
