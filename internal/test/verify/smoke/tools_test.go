package smoke

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// patient are the options of a stock tool that waits for a broker as long as it takes.
var patient = []string{"--consumer-opt=dial_timeout,1m", "--consumer-opt=write_timeout,1m", "--consumer-opt=max_attempts,0", "--consumer-opt=lookupd_poll_interval,250ms", "--consumer-opt=max_backoff_duration,0s"}

// tool starts a stock tool. It ends with the part; end gives its output when it has ended.
func (s *smoke) tool(input, name string, flags ...string) (cmd *exec.Cmd, end func() (string, error)) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
	cmd = exec.CommandContext(ctx, s.tools.Path(name), flags...)
	var out, log bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(s.T, cmd.Start())
	ended := sync.OnceValue(cmd.Wait)
	s.T.Cleanup(func() { cancel(); _ = ended() })
	return cmd, func() (string, error) {
		if err := ended(); err != nil {
			return out.String(), fmt.Errorf("%s: %w: %s", name, err, &log)
		}
		return out.String(), nil
	}
}

// stockTools: to_nsq publishes; nsq_to_file finds the brokers by a stock nsqlookupd, nsq_tail by
// the lookup of the brokers.
func (s *smoke) stockTools() {
	t := s.T
	s.topic("lines", []string{"--partitions", "3"}, "file", "tail")
	s.must("every broker is registered at nsqlookupd", func() bool {
		_, text, err := s.askAt(s.lookup.HTTP, http.MethodGet, "/lookup?topic=lines", "")
		return err == nil && strings.Count(text, `"broadcast_address"`) == 3
	})
	want := e2etest.Numbered("line", 60)
	s.until("to_nsq", func() error {
		_, end := s.tool(strings.Join(want, "\n")+"\n", "to_nsq", "--topic=lines", "--nsqd-tcp-address="+s.Brokers[0].TCP)
		_, err := end()
		return err
	})
	dir := t.TempDir()
	file, filed := s.tool("", "nsq_to_file", append(patient, "--topic=lines", "--channel=file", "--output-dir="+dir, "--sync-interval=100ms", "--lookupd-http-address="+s.lookup.HTTP)...)
	flags := append(s.lookups(), patient...)
	tailed := map[string]bool{}
	for len(tailed) < len(want) {
		_, end := s.tool("", "nsq_tail", append(flags, "--topic=lines", "--channel=tail", fmt.Sprint("-n=", len(want)-len(tailed)))...)
		text, err := end()
		require.NoError(t, err)
		for _, line := range strings.Fields(text) {
			require.Contains(t, want, line)
			tailed[line] = true
		}
	}
	s.Drained("lines", "file") // nsq_to_file finishes a message when it is synced
	require.NoError(t, file.Process.Signal(syscall.SIGTERM))
	_, err := filed()
	require.NoError(t, err)
	names, err := filepath.Glob(filepath.Join(dir, "lines.*"))
	require.NoError(t, err)
	var written []string
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		written = append(written, strings.Fields(string(text))...)
	}
	slices.Sort(written)
	require.Equal(t, want, slices.Compact(written))
}

// lookups are the flags of a tool for the lookup of every broker.
func (s *smoke) lookups() (flags []string) {
	for _, b := range s.Brokers {
		flags = append(flags, "--lookupd-http-address="+b.HTTP)
	}
	return flags
}

// askAt sends one request to another server than a broker.
func (s *smoke) askAt(address, method, path, body string) (status int, text string, err error) {
	req, err := http.NewRequestWithContext(s.T.Context(), method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	all, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all), errors.Join(err, resp.Body.Close())
}

// nsqadmin shows the cluster, and each kind of its buttons works.
func (s *smoke) nsqadmin() {
	address := s.tools.Admin(s.T, s.lookups()...).HTTP
	ask := func(method, path, body string, into any) {
		s.until("nsqadmin "+path, func() error {
			status, text, err := s.askAt(address, method, "/api"+path, body)
			var answer struct{ Message string }
			if err == nil && json.Unmarshal([]byte(text), &answer) == nil && (status != http.StatusOK || answer.Message != "") {
				err = fmt.Errorf("%d %s", status, text)
			}
			if err == nil && into != nil {
				err = json.Unmarshal([]byte(text), into)
			}
			return err
		})
	}
	var topics struct{ Topics []string }
	ask(http.MethodGet, "/topics", "", &topics)
	require.Subset(s.T, topics.Topics, []string{"letters", "orders", "lines"})
	var nodes struct{ Nodes []any }
	ask(http.MethodGet, "/nodes", "", &nodes)
	require.Len(s.T, nodes.Nodes, 3)
	type page struct {
		Depth    int64
		Paused   bool
		Channels []page
	}
	channel := func() (p page) { ask(http.MethodGet, "/topics/made/by-admin", "", &p); return p }
	ask(http.MethodPost, "/topics", `{"topic":"made","channel":"by-admin"}`, nil)
	s.Whole("made")
	s.post(s.Brokers[1], "/pub?topic=made", "m")
	s.must("nsqadmin shows the message", func() bool { return channel().Depth > 0 })
	ask(http.MethodPost, "/topics/made/by-admin", `{"action":"pause"}`, nil)
	s.must("the channel is paused", func() bool { return channel().Paused })
	ask(http.MethodPost, "/topics/made/by-admin", `{"action":"empty"}`, nil)
	s.must("the channel is empty", func() bool { return channel().Depth == 0 })
	ask(http.MethodDelete, "/topics/made", "", nil)
	s.must("the topic is gone", func() bool { return !s.HasTopic("made") })
}

// exportImport: a topic is written to a file, and read by another cluster; a second import
// publishes nothing.
func (s *smoke) exportImport() {
	t := s.T
	file := filepath.Join(t.TempDir(), "events.lsx")
	s.until("export", func() error {
		_ = os.Remove(file)
		_, err := s.run("", append([]string{"export", "events", "--file", file}, s.Addresses()...)...)
		return err
	})
	require.Contains(t, s.ctl("import", file, "--dry-run"), "2 channels")
	var out string
	for range 2 {
		s.until("import", func() (err error) {
			out, err = s.run("", append([]string{"import", file}, s.alone.Addresses()...)...)
			return err
		})
	}
	require.Contains(t, out, "0 messages published to events")
	s.alone.T = t
	require.Equal(t, bodies(s.Cluster, "events"), bodies(s.alone, "events"))
}

// mirror copies topics to another cluster until it has caught up.
func (s *smoke) mirror() {
	var from []string
	for _, b := range s.Brokers {
		from = append(from, b.HTTP)
	}
	s.until("mirror", func() error {
		_, err := s.run("", append([]string{"mirror", "run", "orders", "audit", "--until-caught-up", "--poll=100ms", "--state=" + filepath.Join(s.Dir, "mirror.json"), "--from-http-address=" + strings.Join(from, ",")}, s.alone.Addresses()...)...)
		return err
	})
	s.alone.T = s.T
	for _, topic := range []string{"orders", "audit"} {
		require.Equal(s.T, bodies(s.Cluster, topic), bodies(s.alone, topic))
	}
	s.must("the channels are there", func() bool {
		out, err := s.run("", append([]string{"channel", "list", "audit"}, s.alone.Addresses()...)...)
		return err == nil && strings.Contains(out, "again")
	})
}
