package attack

import (
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/nsqtext"
)

// TestNoSecretInTheLog is finding 7, at every level: logins over TCP and HTTP, good and bad,
// an auth service that is down, one that fails, messages in every form, and administration.
// No secret, no token and no message stands in the log.
func TestNoSecretInTheLog(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"debug", "info", "warn", "error", "fatal"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			down := l.Addr().String()
			require.NoError(t, l.Close()) // no process listens there
			b := start(t, options{level: level, flags: []string{"--auth-http-address=" + down}})
			b.create("orders")
			shop := b.user("shop", "orders", "publish,consume")
			b.ask(bootstrap, "PUT", "/config/log_level", level)
			_, shopSecret, _ := strings.Cut(shop, ".")
			secrets := []string{bootstrap, shopSecret, "s3cret-of-tcp", "s3cret-of-http", "s3cret-in-an-argument", "shop.s3cret-of-a-user", body}

			for i, secret := range []string{"s3cret-of-tcp", "shop.s3cret-of-a-user"} {
				for range 3 {
					c, err := b.connect(fmt.Sprintf("127.66.1.%d", 1+i))
					require.NoError(t, err)
					text, err := c.command("AUTH", secret)
					expect(t, "E_AUTH_FAILED", text, err)
					_ = c.conn.Close()
				}
			}
			for _, route := range []string{"POST /pub?topic=orders", "GET /stats", "GET /v1/topic/peek?topic=orders", "POST /topic/delete?topic=orders", "GET /none", "PUT /config/log_level"} {
				method, path, _ := strings.Cut(route, " ")
				a, err := b.try("s3cret-of-http", method, path, body)
				require.NoError(t, err)
				require.NotEqual(t, 200, a.status)
			}
			require.NotEqual(t, 200, b.ask(bootstrap, "POST", "/topic/create?topic=$", "", "Cookie", "token="+shop).status)
			require.Equal(t, 200, b.ask(shop, "POST", "/pub?topic=orders", body).status)
			require.Equal(t, 200, b.ask(shop, "POST", "/mpub?topic=orders", body+"\n"+body).status)
			require.Equal(t, 403, b.ask(shop, "POST", "/topic/delete?topic=orders", body).status)
			rotated := b.ask(bootstrap, "POST", "/v1/user/rotate?name=shop", "")
			require.Equal(t, 200, rotated.status)
			_, fresh, ok := strings.Cut(rotated.body, `"token":"shop.`)
			require.True(t, ok)
			fresh, _, _ = strings.Cut(fresh, `"`)
			shop, secrets = "shop."+fresh, append(secrets, fresh)

			c := b.client(t, shop)
			require.NoError(t, c.put("orders", body))
			_, err = c.command("PUB $", body)
			require.NoError(t, err)
			c = b.client(t, shop)
			_, err = io.WriteString(c.conn, "SUB orders c\nRDY 10\n")
			require.NoError(t, err)
			for seen := 0; seen < 2; { // some are requeued, some time out at the end of the connection
				kind, _, err := c.next()
				require.NoError(t, err)
				if kind == 2 {
					seen++
				}
			}
			_ = c.conn.Close()
			for _, say := range []string{"AUTH\n" + nsqtext.Sized(shop)[:20], "PUB orders\n" + nsqtext.Sized(body)[:20], "AUTH " + shop + "\n", shop + "\n", body + "\n"} {
				c, err := b.connect("")
				require.NoError(t, err)
				_, _ = io.WriteString(c.conn, say)
				_ = c.conn.Close()
			}
			b.terminate()
			text := b.logged()
			if level == "debug" || level == "info" {
				require.Contains(t, text, "audit=true", "the log has what happened")
			}
			if level != "error" && level != "fatal" {
				require.Contains(t, text, "authorization query failed")
			}
			for _, secret := range secrets {
				require.NotContains(t, text, secret)
			}
			b.requireNotOnDisk(secrets[:2])
		})
	}
}

// requireNotOnDisk: no file below the data path holds a secret.
func (b *broker) requireNotOnDisk(secrets []string) {
	b.t.Helper()
	require.NoError(b.t, filepath.WalkDir(b.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, secret := range secrets {
			require.NotContains(b.t, string(text), secret, path)
		}
		return nil
	}))
}

// TestFilesArePrivate is finding 10: another user of the machine reads and writes nothing that
// a broker makes, whatever the umask.
func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	b := start(t, options{flags: []string{"--max-bytes-per-file=65536"}})
	c := b.client(t, bootstrap)
	for range 20 {
		require.NoError(t, c.put("orders", strings.Repeat("x", 10_000)))
	}
	b.terminate()
	b.run()
	b.ready()
	files := 0
	require.NoError(t, filepath.WalkDir(b.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files++
		foreign := fs.FileMode(0o077)
		if info.Mode()&fs.ModeSocket != 0 {
			foreign = 0o022 // to connect takes the right to write
		}
		require.Zero(t, info.Mode().Perm()&foreign, "%s %s", info.Mode(), path)
		return nil
	}))
	require.Greater(t, files, 15)
}

// TestSecretsAreNoArguments is finding 10: the secrets of a broker come from files, which the
// list of processes does not show.
func TestSecretsAreNoArguments(t *testing.T) {
	t.Parallel()
	b := start(t, options{})
	arguments, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", b.cmd.Process.Pid))
	require.NoError(t, err)
	require.NotContains(t, string(arguments), bootstrap)
	printed, err := once(append(b.args, "--print-config")...)
	require.NoError(t, err)
	require.NotContains(t, printed, bootstrap)
	for _, flag := range []string{"--cluster-token=secret", "--etcd-password=secret", "--bootstrap-admin-token=secret"} {
		_, err := once(flag)
		require.Error(t, err, flag)
	}
}

// once runs nsqd with arguments that end it at once.
func once(args ...string) (string, error) {
	out, err := exec.Command(program("nsqd"), args...).CombinedOutput()
	return string(out), err
}
