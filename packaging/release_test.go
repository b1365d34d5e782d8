package packaging

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReleaseCanBeRepeated: a clone at another path, with another environment, gives the same
// bytes.
func TestReleaseCanBeRepeated(t *testing.T) {
	_, first := release(t)
	work := scratch(t)
	source := clone(t, filepath.Join(work, "some", "where", "else"))
	sh(t, source, "umask 077; packaging/release.sh "+version+" "+work+"/dist linux-amd64",
		"GOFLAGS=-buildvcs=false", "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8", "GOAMD64=v3", "CGO_ENABLED=1")
	one, two := read(t, first, "SHA256SUMS"), read(t, work, "dist", "SHA256SUMS")
	require.Equal(t, one, two)
	for _, file := range []string{
		"lockstep-1.2.3-linux-amd64.tar.gz", "lockstep-1.2.3-kubernetes.tar.gz", "lockstep_1.2.3-1_amd64.deb",
		"nsqd-1.2.3-linux-amd64.cdx.json", "nsqctl-1.2.3-linux-amd64.cdx.json",
	} {
		require.Contains(t, one, "  "+file+"\n")
	}
	require.Equal(t, 5, strings.Count(one, "\n"))
	sh(t, first, "sha256sum --check SHA256SUMS")
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return string(text)
}

// unpacked returns the unpacked archive of a release.
func unpacked(t *testing.T) string {
	t.Helper()
	_, dist := release(t)
	dir := scratch(t)
	sh(t, dir, "tar -xzf "+dist+"/lockstep-"+version+"-linux-amd64.tar.gz")
	return filepath.Join(dir, "lockstep-"+version+"-linux-amd64")
}

// TestBinaries: they need no library, name their commit, and do not contain the path of their
// build.
func TestBinaries(t *testing.T) {
	source, _ := release(t)
	dir := unpacked(t)
	commit := strings.TrimSpace(sh(t, source, "git rev-parse HEAD"))
	for _, name := range []string{"nsqd", "nsqctl"} {
		path := filepath.Join(dir, "bin", name)
		f, err := elf.Open(path)
		require.NoError(t, err)
		for _, p := range f.Progs {
			require.NotEqual(t, elf.PT_INTERP, p.Type, "it would need a dynamic linker")
		}
		require.NoError(t, f.Close())
		info := sh(t, "", "go version -m "+path)
		require.Contains(t, info, "vcs.revision="+commit)
		require.Contains(t, info, "vcs.modified=false")
		require.Contains(t, info, "CGO_ENABLED=0")
		require.Contains(t, info, "GOAMD64=v1")
		require.NotContains(t, read(t, path), source)
	}
	require.Contains(t, sh(t, "", dir+"/bin/nsqd --version"), "nsqd v")
}

// TestArchive: it has all files that the guide promises, and the manual pages are readable.
func TestArchive(t *testing.T) {
	dir := unpacked(t)
	for _, file := range []string{
		"bin/nsqd", "bin/nsqctl", "etc/nsqd.toml", "systemd/nsqd.service", "man/nsqd.8.gz", "man/nsqctl-pub.1.gz",
		"completions/nsqctl", "completions/_nsqctl", "completions/nsqctl.fish", "doc/LICENSE", "doc/CHANGELOG.md", "doc/guide/install.md",
		"doc/reference/openapi.yaml", "doc/metrics.md", "contrib/grafana/overview.json", "contrib/prometheus/alerts.yml",
	} {
		require.FileExists(t, filepath.Join(dir, file))
	}
	require.NoDirExists(t, filepath.Join(dir, "debian"))
	require.Empty(t, sh(t, dir, "for page in man/*; do LC_ALL=C.UTF-8 man --warnings=w -E UTF-8 -l -Tutf8 -Z $page 2>&1 >/dev/null; done"))
	sh(t, dir, "bash -n completions/nsqctl")
	require.Equal(t, "the settings are valid\n", sh(t, dir, "bin/nsqd --config etc/nsqd.toml --check-config --insecure-clients --insecure-http"))
}

// TestBillOfMaterials: it lists exactly the modules of the binary.
func TestBillOfMaterials(t *testing.T) {
	_, dist := release(t)
	dir := unpacked(t)
	for _, name := range []string{"nsqd", "nsqctl"} {
		var bill struct {
			BOMFormat string `json:"bomFormat"`
			Metadata  struct {
				Component struct{ Version string } `json:"component"`
			} `json:"metadata"`
			Components []struct{ Name, Version string } `json:"components"`
		}
		require.NoError(t, json.Unmarshal([]byte(read(t, dist, name+"-"+version+"-linux-amd64.cdx.json")), &bill))
		require.Equal(t, "CycloneDX", bill.BOMFormat)
		require.Equal(t, version, bill.Metadata.Component.Version)
		var listed, linked []string
		for _, c := range bill.Components {
			if c.Name != "std" {
				listed = append(listed, c.Name+" "+c.Version)
			}
		}
		for line := range strings.Lines(sh(t, "", "go version -m "+dir+"/bin/"+name)) {
			if f := strings.Fields(line); len(f) > 2 && f[0] == "dep" {
				linked = append(linked, f[1]+" "+f[2])
			}
		}
		require.Greater(t, len(linked), 20)
		require.ElementsMatch(t, linked, listed)
	}
}

// TestOtherSystems: the code builds for the other systems of a release, each binary for its
// own.
func TestOtherSystems(t *testing.T) {
	source, _ := release(t)
	for system, want := range map[string]string{
		"linux arm64": "\x7fELF\x02\x01\x01\x00", "freebsd amd64": "\x7fELF\x02\x01\x01\x09", "darwin arm64": "\xcf\xfa\xed\xfe\x0c", "darwin amd64": "\xcf\xfa\xed\xfe\x07",
	} {
		out := scratch(t)
		sh(t, source, "packaging/build.sh "+out+" "+system+" "+version)
		for _, name := range []string{"nsqd", "nsqctl"} {
			require.Equal(t, want, read(t, out, name)[:len(want)], system)
		}
	}
}

// TestReleaseRefuses: a release needs a clean commit and a version.
func TestReleaseRefuses(t *testing.T) {
	source := clone(t, filepath.Join(scratch(t), "source"))
	require.NoError(t, os.WriteFile(filepath.Join(source, "new.txt"), nil, 0o644))
	out, err := try(source, "packaging/release.sh "+version+" ../dist linux-amd64")
	require.Error(t, err)
	require.Contains(t, out, "files differ from the commit")
	for _, bad := range []string{"''", "'1.2.3 -X main.x=y'", "1/2"} {
		out, err = try(source, "packaging/build.sh ../out linux amd64 "+bad)
		require.Error(t, err)
		require.Contains(t, out, "a version such as 1.2.3")
	}
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
