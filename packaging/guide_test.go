package packaging

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// block is a group of commands in the guide.
type block struct{ language, script string }

var fence = regexp.MustCompile("(?ms)^```([a-z]+)(?: ([a-z-]+))?\n(.*?)^```$")

// pageBlock returns a block of commands of a page of docs/guide by its word.
func pageBlock(t *testing.T, page, word string) string {
	t.Helper()
	for _, m := range fence.FindAllStringSubmatch(read(t, "..", "docs", "guide", page), -1) {
		if m[2] == word {
			return m[3]
		}
	}
	t.Fatalf("%s has no block %s", page, word)
	return ""
}

// guide returns the blocks of docs/guide/install.md by the word behind their language; blocks
// with the same word are joined.
func guide(t *testing.T) map[string]block {
	t.Helper()
	blocks := map[string]block{}
	for _, m := range fence.FindAllStringSubmatch(read(t, "..", "docs", "guide", "install.md"), -1) {
		require.True(t, m[1] != "sh" || m[2] != "", "commands without a word that says where they run:\n%s", m[3])
		key := m[2]
		if m[1] != "sh" {
			key = m[1] + " " + m[2]
		}
		blocks[key] = block{m[1], blocks[key].script + m[3]}
	}
	return blocks
}

// notRun are the commands of the guide that cannot run here, with the test in their place.
var notRun = map[string]string{
	"compose": "compose is a program of docker; TestCompose reads the file as it does, and runs the services",
	"kubectl": "there is neither a registry nor a cluster; TestManifests has what the API server checks, TestStatefulSet runs the pods and the commands in them",
}

// TestGuideIsRun: one of these tests runs each command of the guide, or notRun lists it with
// the reason.
func TestGuideIsRun(t *testing.T) {
	var words []string
	for word, b := range guide(t) {
		if b.language == "sh" && notRun[word] == "" {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	require.Equal(t, []string{"archive", "compose-try", "debian", "docker", "kubernetes", "remove", "settings", "source", "three", "upgrade"}, words,
		"TestGuideArchive, TestCompose, TestGuideDebian, TestGuideDocker, TestStatefulSet, TestGuideSource, TestGuideThreeBrokers")
}

// dist copies the files of a release and the packages for the upgrade.
func dist(t *testing.T) string {
	t.Helper()
	source, made := release(t)
	dir := filepath.Join(scratch(t), "dist")
	sh(t, "", "cp -a "+made+" "+dir)
	if _, err := os.Stat(filepath.Join(source, "..", "upgrade")); err != nil {
		sh(t, source, "make deb VERSION="+upgraded+" ARCH=amd64 DIST=../upgrade")
	}
	sh(t, source, "cp ../upgrade/*.deb "+dir)
	return dir
}

func TestGuideArchive(t *testing.T) {
	p, files := podman(t), dist(t)
	container(t, "lockstep-archive")
	script := filepath.Join(files, "guide.sh")
	require.NoError(t, os.WriteFile(script, []byte(guide(t)["archive"].script), 0o644))
	out := sh(t, "", fmt.Sprintf("timeout 300 %s run --name lockstep-archive --network none %s -v %s:/downloads -w /downloads --rootfs %s:O sh -eu guide.sh",
		p, limits, files, debian(t)))
	require.Contains(t, out, "lockstep-1.2.3-linux-amd64.tar.gz: OK")
	require.True(t, strings.HasSuffix(out, "OKhello\n"), "published and consumed:\n%s", out)
}

// TestGuideDebian installs, uses, upgrades and removes the package with the guide's commands,
// on a Debian whose first process is systemd.
func TestGuideDebian(t *testing.T) {
	p, blocks := podman(t), guide(t)
	system := boot(t, "lockstep-guide", dist(t))
	sh(t, "", system+`sh -euc 'printf "#!/bin/sh\nsed -i s/^#node_name.*/node_name=\\\"n1\\\"/ \$1\n" >/usr/local/bin/editor; chmod +x /usr/local/bin/editor'`)
	run := func(word string) string {
		return sh(t, "", fmt.Sprintf("timeout 300 %s exec -w /downloads lockstep-guide sh -euc '%s'", p, strings.ReplaceAll(blocks[word].script, "'", `'\''`)))
	}
	out := run("debian")
	require.Contains(t, out, "active (running)")
	out = run("settings")
	require.Contains(t, out, "the settings are valid\n")
	require.Contains(t, out, "node_name = \"n1\" # file /etc/lockstep/nsqd.toml\n")
	out = run("upgrade")
	require.Contains(t, out, "greetings", "the topic is still there")
	require.Contains(t, sh(t, "", system+"dpkg -s lockstep"), "Version: 1.2.4-1")
	out = run("remove")
	require.Contains(t, out, "journal")
}

// certify makes the certificates of three brokers in a folder, as secure-cluster.md does.
func certify(t *testing.T, dir string) {
	t.Helper()
	nsqctl := filepath.Join(unpacked(t), "bin", "nsqctl")
	sh(t, dir, nsqctl+" cert ca && "+nsqctl+" cert broker n1.example n2.example n3.example")
}

// TestGuideSettings: the file for three brokers is valid, with the certificates of the guide.
func TestGuideSettings(t *testing.T) {
	dir := scratch(t)
	certify(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nsqd.toml"), []byte(guide(t)["toml settings"].script), 0o644))
	nsqd := filepath.Join(unpacked(t), "bin", "nsqd")
	require.Equal(t, "the settings are valid\n", sh(t, dir, nsqd+" --config nsqd.toml --tls-dir n2.example --node-name n2.example --check-config"), "and no warning")
}

// TestGuideThreeBrokers installs the package on three machines, of which the first has run alone, with a message, and makes a
// cluster of them with the guide's settings and commands.
func TestGuideThreeBrokers(t *testing.T) {
	blocks, files, n := guide(t), dist(t), newNetwork(t, 3)
	n.names(func(i int) string { return fmt.Sprintf("n%d.example", i+1) }, 0, 0, 0)
	certify(t, files)
	var systems []func(script string) string
	for i := range 3 {
		name := fmt.Sprintf("lockstep-three-%d", i+1)
		bootIn(t, name, files, fmt.Sprintf("--network ns:/run/netns/%s --hostname n%d.example --no-hosts -v %s:/etc/hosts", n.namespace(i), i+1, n.hosts))
		on := func(script string) string {
			return sh(t, "", fmt.Sprintf("timeout 120 %s exec -w /downloads %s sh -euc '%s'", podman(t), name, strings.ReplaceAll(script, "'", `'\''`)))
		}
		systems = append(systems, on)
		if on("ln -s /bin/true /usr/local/bin/editor"); i == 0 {
			require.Contains(t, on(blocks["debian"].script), "active (running)")
			continue
		}
		on("apt-get install -y ./lockstep_1.2.3-1_amd64.deb")
	}
	require.NoError(t, os.WriteFile(filepath.Join(files, "nsqd.toml"), []byte(blocks["toml settings"].script), 0o644))
	for i, on := range systems {
		on(fmt.Sprintf("cp -r n%d.example /etc/lockstep/tls; cp nsqd.toml /etc/lockstep/nsqd.toml", i+1))
		require.Contains(t, on(blocks["three"].script), "the settings are valid\n")
	}
	for _, on := range systems {
		on("for try in $(seq 60); do nsqctl health --ready 2>/dev/null && exit; sleep 1; done; journalctl -u nsqd --no-pager | tail -20; exit 1")
	}
	out := systems[0](pageBlock(t, "secure-cluster.md", "administrator"))
	for i := range systems {
		require.Regexp(t, fmt.Sprintf(`(?m)^n%[1]d\.example +true +n%[1]d\.example:4150`, i+1), out)
	}
	require.Regexp(t, `(?m)^greetings +0 +n1\.example `, out)
	require.Contains(t, systems[0]("nsqctl peek greetings"), "hello")
}

// TestGuideDocker: podman runs the commands for docker, with additional flags for this
// machine.
func TestGuideDocker(t *testing.T) {
	source, _ := release(t)
	image(t, source, version) // builds the base image and fills the cache of the compiler
	n := newNetwork(t, 1)
	container(t, "lockstep")
	p := podman(t)
	t.Cleanup(func() { _, _ = try("", p+" rm -f -t 0 lockstep; "+p+" volume rm -f lockstep") })
	bin := scratch(t)
	modules := strings.TrimSpace(sh(t, "", "go env GOMODCACHE"))
	docker := fmt.Sprintf(`#!/bin/sh
command=$1
shift
case $command in
build) set -- --isolation chroot --format docker --pull-never --ignorefile packaging/Dockerfile.dockerignore --build-arg GOPROXY=file:///modules/cache/download -v %s:/modules:ro -v %s/gocache:/root/.cache/go-build "$@" ;;
run) set -- %s --network ns:/run/netns/%s "$@" ;;
esac
exec %s $command "$@"
`, modules, cache(t), limits, n.namespace(0), p)
	require.NoError(t, os.WriteFile(filepath.Join(bin, "docker"), []byte(docker), 0o755))
	out := sh(t, source, guide(t)["docker"].script, "PATH="+bin+":"+os.Getenv("PATH"))
	require.Contains(t, out, "memory limit set  from=container limit=921MiB")
	require.Contains(t, out, "ready to serve clients")
	require.Contains(t, out, "BROKER")

	// A second container serves the data of the first.
	out = sh(t, source, "timeout 120 sh -euc \""+guide(t)["docker"].script+"\"", "PATH="+bin+":"+os.Getenv("PATH"))
	require.Contains(t, out, "BROKER")
}

func TestGuideSource(t *testing.T) {
	source := clone(t, filepath.Join(scratch(t), "source"))
	sh(t, source, guide(t)["source"].script)
	require.FileExists(t, filepath.Join(source, "dist", "lockstep_1.2.3-1_amd64.deb"))
	require.FileExists(t, filepath.Join(source, "dist", "container-root", "usr", "bin", "nsqd"))
	require.Empty(t, sh(t, source, "git status --porcelain"), "nothing is left in the way of a commit")
	sh(t, source, "make clean")
	require.NoDirExists(t, filepath.Join(source, "dist"))
}
