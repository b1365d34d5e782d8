package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// shared is a broker that many tests use, so that each of them costs no process. It starts with
// the first test that needs it, and ends after the last test. Each test has topics, users and
// connections of its own, and expects nothing of the broker's totals, its log level or its lists.
type shared struct {
	name string
	// flags returns the configuration. dir remains until the broker ends.
	flags func(t *testing.T, dir string) []string
	// users makes an administrator, after which every client has to log in.
	users bool
	close func() // ends what the flags started

	mu     sync.Mutex
	broker *broker
	dir    string
}

var (
	// plain has the default settings.
	plain = &shared{name: "plain", flags: func(*testing.T, string) []string { return nil }}
	// strict has small limits, and creates no topics by itself.
	strict = &shared{name: "strict", flags: func(*testing.T, string) []string {
		return []string{
			"--max-msg-size=1000", "--max-body-size=5000", "--max-req-timeout=200ms", "--requeue-on-disconnect=false",
			"--auto-create-topics=false", "--http-allowed-host=*.example.org",
		}
	}}
	// guarded has users. Its lookup port is address(6), and its log level debug.
	guarded = &shared{name: "guarded", users: true, flags: func(_ *testing.T, _ string) []string { return []string{"--log-level=debug"} }}

	// authorized asks an authorization service.
	authorized = &shared{name: "authorized", flags: service.start, close: service.stop}

	allShared = []*shared{plain, strict, guarded, authorized}
)

// use returns the broker for one test.
func (s *shared) use(t *testing.T) *broker {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broker == nil {
		s.start(t)
	}
	b := *s.broker
	b.t, b.http = t, newHTTPClient()
	b.skipped = len(b.logged())
	t.Cleanup(func() {
		b.http.CloseIdleConnections()
		if t.Failed() {
			t.Logf("log of the %s broker since the test began:\n%s", s.name, b.logged())
		}
	})
	require.False(t, b.ended(), "the %s broker has ended", s.name)
	return &b
}

func (s *shared) start(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "nsqd-"+s.name)
	require.NoError(t, err)
	b := &broker{t: t, dir: filepath.Join(dir, "data"), base: freePorts(t), http: newHTTPClient()}
	defer b.http.CloseIdleConnections()
	flags := s.flags(t, dir)
	if s.users {
		flags = append(flags, "--lookupd-http-address="+b.address(6))
	}
	b.launch(filepath.Join(dir, "log"), flags...)
	s.broker, s.dir = b, dir // stop ends it from here on
	b.ready()
	if s.users {
		b.root = b.user("", "root", "&admin=true")
	}
}

// stop ends the broker as an operator would.
func (s *shared) stop() error {
	if s.broker == nil {
		return nil
	}
	b := s.broker
	defer os.RemoveAll(s.dir)
	if s.close != nil {
		defer s.close()
	}
	if b.ended() {
		return fmt.Errorf("the %s broker ended during the tests: %v\n%s", s.name, b.cmd.ProcessState, b.logged())
	}
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-b.done // the time limit of the tests bounds it
	if code, log := b.cmd.ProcessState.ExitCode(), b.logged(); code != 0 || strings.Contains(log, "panic") {
		return fmt.Errorf("the %s broker did not end as planned: %v\n%s", s.name, b.cmd.ProcessState, log)
	}
	return nil
}

// allTests ends the shared brokers after the last test.
type allTests struct{ *testing.M }

// Run implements goleak.TestingM.
func (m allTests) Run() int {
	code := m.M.Run()
	for _, s := range allShared {
		if err := s.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}
