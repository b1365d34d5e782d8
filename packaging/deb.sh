#!/bin/sh
# Builds the Debian package of a staged directory (stage.sh):
#
#   packaging/deb.sh DIR ARCH VERSION OUT
#
# SOURCE_DATE_EPOCH, by default the time of the commit, is the time of all files.
set -eu
dir=$(cd "$1" && pwd) arch=$2 version=$3
mkdir -p "$4"
out=$(cd "$4" && pwd)
go=${GO:-go}
cd "$(dirname "$0")/deb"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

debian_version=$(echo "$version" | sed 's/-/~/g')-1
mkdir -p "$dir/debian"
{
	printf 'lockstep (%s) unstable; urgency=medium\n\n' "$debian_version"
	printf '  * Release %s; /usr/share/doc/lockstep/changelog.gz says what is new.\n\n' "$version"
	printf ' -- Lockstep authors <lockstep@lockstepmq.example>  %s\n' "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$dir/debian/changelog.Debian.gz"
gzip -9nc "$dir/doc/CHANGELOG.md" >"$dir/debian/changelog.gz"

nfpm=${NFPM:-"$go run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4"}
sed -e "s|@STAGE@|$dir|g" -e "s|@ARCH@|$arch|g" -e "s|@VERSION@|$debian_version|g" nfpm.yaml >"$dir/debian/nfpm.yaml"
$nfpm package --config "$dir/debian/nfpm.yaml" --packager deb --target "$out/lockstep_${debian_version}_$arch.deb"
