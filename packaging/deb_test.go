package packaging

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// boot starts a Debian with systemd as its first process, with a directory at /downloads and
// only loopback as its network. It returns the beginning of a command line in it.
func boot(t *testing.T, name, downloads string) string {
	return bootIn(t, name, downloads, "--network none")
}

// bootIn is boot with flags for another network.
func bootIn(t *testing.T, name, downloads, network string) string {
	t.Helper()
	p := podman(t)
	container(t, name)
	sh(t, "", fmt.Sprintf("%s run -d --name %s %s --privileged %s --systemd=always -v %s:/downloads --rootfs %s:O /lib/systemd/systemd",
		p, name, network, limits, downloads, debian(t)))
	system := p + " exec " + name + " "
	eventually(t, "systemd runs", system+"systemctl is-system-running")
	return system
}

// TestDebianPackage runs test-deb.sh: lintian, then the life of a package under systemd.
func TestDebianPackage(t *testing.T) {
	files := dist(t)
	system := boot(t, "lockstep-deb", files)
	out, err := try("..", "packaging/test-deb.sh "+files+"/lockstep_1.2.3-1_amd64.deb "+files+"/lockstep_1.2.4-1_amd64.deb", "SYSTEM="+system)
	require.NoError(t, err, out)
	t.Log(out)
}
