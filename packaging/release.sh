#!/bin/sh
# Builds all files of a release, from the current commit:
#
#   packaging/release.sh VERSION OUT [GOOS-GOARCH …]
#
# Archives with binaries, Debian packages, manifests, the bills of materials of
# the binaries (CycloneDX), and SHA256SUMS. Two runs for one commit with one version of Go
# give equal files.
set -eu
version=$1 out=$2
shift 2
[ $# -gt 0 ] || set -- linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 freebsd-amd64
here=$(cd "$(dirname "$0")" && pwd)
go=${GO:-go}
sbom=${SBOM:-"$go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"}
cd "$here/.."

# The bills of materials have the tools' checksums, so the tools are built reproducibly too.
unset GOFLAGS GOEXPERIMENT GODEBUG GOAMD64 GOARM64
export CGO_ENABLED=0 GOWORK=off LC_ALL=C TZ=UTC
umask 022

if [ -n "$(git status --porcelain)" ] && [ -z "${ALLOW_MODIFIED:-}" ]; then
	echo "release.sh: files differ from the commit; commit them, or ALLOW_MODIFIED=1 for a try" >&2
	exit 1
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# archive NAME: $work/NAME as NAME.tar.gz, with sorted names, one time and one owner
archive() {
	tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
		--mode='u=rwX,go=rX' -cf - "$1" | gzip -9n >"$out/$1.tar.gz"
}

for system in "$@"; do
	os=${system%-*} arch=${system#*-} name=lockstep-$version-$system
	"$here/build.sh" "$work/$name/bin" "$os" "$arch" "$version"
	"$here/stage.sh" "$work/$name" "$version"
	for binary in nsqd nsqctl; do
		(cd "$work" && $sbom bin -json -noserial -notimestamp -std -version "$version" -output "$out/$binary-$version-$system.cdx.json" "$name/bin/$binary" 2>"$work/sbom.log") ||
			{ cat "$work/sbom.log" >&2; exit 1; }
	done
	if [ "$os" = linux ]; then
		mkdir -p "$work/$name/systemd"
		cp packaging/deb/nsqd.service "$work/$name/systemd/"
		"$here/deb.sh" "$work/$name" "$arch" "$version" "$out" >/dev/null
		rm -rf "$work/$name/debian"
	fi
	archive "$name"
done

name=lockstep-$version-kubernetes
cp -R packaging/kubernetes "$work/$name"
sed -i "s|image: lockstep:latest|image: lockstep:$version|" "$work/$name/statefulset.yaml"
archive "$name"

cd "$out"
rm -f SHA256SUMS
LC_ALL=C sha256sum -- * >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" .
