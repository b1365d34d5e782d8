package packaging

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
)

// TestDockerfileLint: docker's own checks report nothing.
func TestDockerfileLint(t *testing.T) {
	text := read(t, "Dockerfile")
	source := llb.NewSourceMap(nil, "Dockerfile", "dockerfile", []byte(text))
	source.Definition = &llb.Definition{}
	found, err := dockerfile2llb.DockerfileLint(context.Background(), []byte(text), dockerfile2llb.ConvertOpt{
		SourceMap: source, MetaResolver: noRegistry{},
	})
	require.NoError(t, err)
	require.Nil(t, found.Error)
	require.Empty(t, found.Warnings)
}

// noRegistry resolves every image to an empty one.
type noRegistry struct{}

func (noRegistry) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	return ref, digest.FromString(ref), []byte("{}"), nil
}

// image builds the image of a version with the guide's command, and returns its name. The base
// image of the build stage is made of Debian and the Go of the tests: there is no registry
// here.
func image(t *testing.T, source, version string) string {
	t.Helper()
	p := podman(t)
	golang(t)
	sh(t, source, "go mod download") // all modules, those for other systems, too: the build reads them from here
	modules := strings.TrimSpace(sh(t, "", "go env GOMODCACHE"))
	results := filepath.Join(cache(t), "gocache") // a separate cache: the image must not depend on this machine's own builds
	require.NoError(t, os.MkdirAll(results, 0o755))
	name := "localhost/lockstep:" + version
	sh(t, source, fmt.Sprintf(`%s build --isolation chroot --format docker --pull-never -f packaging/Dockerfile --ignorefile packaging/Dockerfile.dockerignore \
  --build-arg VERSION=%s --build-arg GOPROXY=file:///modules/cache/download -v %s:/modules:ro -v %s:/root/.cache/go-build -t %s .`,
		p, version, modules, results, name))
	return name
}

// golang builds the base image of the build stage, once per version of Go.
func golang(t *testing.T) {
	t.Helper()
	p := podman(t)
	tag := "docker.io/library/golang:1.26-bookworm"
	goVersion := strings.TrimSpace(sh(t, "", "go env GOVERSION"))
	require.Regexp(t, `^go1\.26\.`, goVersion, "the image has the version of Go that the Dockerfile names")
	made, _ := try("", p+" image inspect --format '{{.Config.Env}}' "+tag)
	if strings.Contains(made, goVersion) {
		return
	}
	root := debian(t)
	sh(t, "", fmt.Sprintf(`root=%[1]s; mkdir -p $root/usr/local
cp -a %[2]s/. $root/; rm -rf $root/usr/local/go; cp -a $(go env GOROOT) $root/usr/local/go
tar -C $root -c . | %[3]s import -c 'ENV PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin' -c 'ENV GOTOOLCHAIN=local' -c 'ENV MADE_OF=%[4]s' - %[5]s
rm -rf $root`, filepath.Join(scratch(t), "golang"), root, p, goVersion, tag))
}

// TestImage: the image of the Dockerfile has the release's binaries and little more. It runs
// without privileges, keeps its data and its memory limit, and stops in order.
func TestImage(t *testing.T) {
	source, _ := release(t)
	p := podman(t)
	name := image(t, source, version)
	root := strings.TrimSpace(sh(t, "", p+" image mount "+name))
	t.Cleanup(func() { _, _ = try("", p+" image umount "+name) })
	for _, binary := range []string{"nsqd", "nsqctl"} {
		require.Equal(t, hash(read(t, unpacked(t), "bin", binary)), hash(read(t, root, "usr", "bin", binary)), "two builds, one commit")
	}
	entries := sh(t, root, "find . -type f | sort")
	require.Equal(t, "./LICENSE\n./etc/group\n./etc/lockstep/nsqd.toml\n./etc/nsswitch.conf\n./etc/passwd\n./etc/ssl/certs/ca-certificates.crt\n./usr/bin/nsqctl\n./usr/bin/nsqd\n", entries)
	require.Contains(t, read(t, root, "etc", "ssl", "certs", "ca-certificates.crt"), "BEGIN CERTIFICATE")

	n := newNetwork(t, 1)
	const broker = "lockstep-image"
	container(t, broker)
	_, _ = try("", p+" volume rm -f "+broker)
	t.Cleanup(func() { _, _ = try("", p+" volume rm -f "+broker) })
	run := func() {
		sh(t, "", fmt.Sprintf("%s run -d --name %s --network ns:/run/netns/%s --memory 512m --read-only --cap-drop ALL --security-opt no-new-privileges %s -v %s:/var/lib/lockstep %s --node-name=n1 --broadcast-address=%s --insecure-clients --insecure-http",
			p, broker, n.namespace(0), limits, broker, name, addressOf(0, 0)))
		eventually(t, "is well", p+" healthcheck run "+broker)
		eventually(t, "serves", p+" exec "+broker+" nsqctl health --ready")
	}
	run()
	api := "curl -sS --fail-with-body http://" + addressOf(0, 0) + ":4151"
	require.Equal(t, "OK", sh(t, "", n.outside(api+"/pub?topic=t -d hello")))
	require.InDelta(t, 0.9*(512<<20), metric(t, sh(t, "", n.outside(api+"/metrics")), "go_gc_gomemlimit_bytes"), 1)
	require.Contains(t, sh(t, "", p+" logs "+broker), "memory limit set  from=container limit=460MiB")
	user := sh(t, "", p+" top "+broker+" huser")
	require.Contains(t, user, "65532")
	sh(t, "", p+" stop -t 45 "+broker)
	require.Equal(t, "0\n", sh(t, "", p+" inspect --format '{{.State.ExitCode}}' "+broker))
	require.Contains(t, sh(t, "", p+" logs "+broker), "INFO: stopped")
	sh(t, "", p+" rm "+broker)
	run()
	require.Contains(t, sh(t, "", n.outside(api+"/v1/topic/peek?topic=t")), `"body":"hello"`, "what was put before the first end")

	// The health check fails for a broker that does not answer.
	sh(t, "", p+" pause "+broker)
	out, err := try("", fmt.Sprintf("%s run --rm --network ns:/run/netns/%s %s --entrypoint /usr/bin/nsqctl %s health --timeout 1s", p, n.namespace(0), limits, name))
	require.Error(t, err)
	require.Contains(t, out, "nsqctl:")
	sh(t, "", p+" unpause "+broker)
}
