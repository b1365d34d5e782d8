package e2e

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// guide runs the commands of a page of docs/guide.
type guide struct {
	t        *testing.T
	commands map[string]string
	dir      string   // where they run
	replace  []string // of the page's example hosts
	inside   []string // a command that runs the commands, such as nsenter; none: they run here
}

// openGuide reads the commands of a page. here replaces its example hosts, in pairs.
func openGuide(t *testing.T, page string, here ...string) *guide {
	t.Helper()
	text, err := os.ReadFile("../../../docs/guide/" + page)
	require.NoError(t, err)
	g := &guide{t: t, commands: map[string]string{}, dir: t.TempDir(), replace: append([]string{"nsqctl ", built.path("nsqctl") + " "}, here...)}
	for _, m := range guideBlock.FindAllStringSubmatch(string(text), -1) {
		g.commands[m[1]] += m[2]
	}
	return g
}

// command is a block of the page, with further arguments.
func (g *guide) command(word string, more ...string) *exec.Cmd {
	g.t.Helper()
	require.Contains(g.t, g.commands, word, "a block of the guide")
	script := strings.NewReplacer(g.replace...).Replace(strings.TrimSpace(g.commands[word]))
	require.NotContains(g.t, script, "example")
	if len(more) > 0 {
		script = strings.Join(append([]string{script}, more...), " ")
	}
	args := append(slices.Clone(g.inside), "sh", "-euc", "exec "+script)
	cmd := exec.CommandContext(g.t.Context(), args[0], args[1:]...)
	cmd.Dir = g.dir
	return cmd
}

// run runs a block and returns what it prints.
func (g *guide) run(word string, more ...string) (stdout, stderr string, err error) {
	g.t.Helper()
	var out, problems strings.Builder
	cmd := g.command(word, more...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	return out.String(), problems.String(), err
}

// must runs a block that succeeds.
func (g *guide) must(word string, more ...string) (stdout, stderr string) {
	g.t.Helper()
	stdout, stderr, err := g.run(word, more...)
	require.NoError(g.t, err, "%s: %s%s", word, stdout, stderr)
	return stdout, stderr
}

// logged is one message of `nsqctl peek -o json`.
type logged struct {
	Partition int            `json:"partition"`
	Sequence  uint64         `json:"sequence"`
	DeliverAt int64          `json:"deliver_at"`
	Header    map[string]any `json:"header"`
	Body      string         `json:"body"`
}

// origin is the header by which a copy names its original; "" if it is none.
func (m logged) origin() string {
	text, _ := m.Header["##origin"].(string)
	return text
}

// peekAll reads the log of a topic.
func (c *cluster) peekAll(topic string) (all []logged) {
	c.t.Helper()
	out, problems, err := c.ctl("peek", topic, "-n=10000000", "-o=json")
	require.NoError(c.t, err, "%s%s", out, problems)
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var m logged
		if err := d.Decode(&m); err == io.EOF {
			return all
		} else {
			require.NoError(c.t, err)
		}
		all = append(all, m)
	}
}

// link passes connections to a broker until it is cut: then it resets them and takes no new ones.
type link struct {
	l     net.Listener
	to    string
	wg    sync.WaitGroup
	mu    sync.Mutex
	isCut bool
	conns map[net.Conn]bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return newLinkAt(t, l, to)
}

// newLinkAt is newLink with a listener of the caller.
func newLinkAt(t *testing.T, l net.Listener, to string) *link {
	k := &link{l: l, to: to, conns: map[net.Conn]bool{}}
	k.wg.Go(k.serve)
	t.Cleanup(func() {
		_ = l.Close()
		k.set(true)
		k.wg.Wait()
	})
	return k
}

func (k *link) address() string { return k.l.Addr().String() }

func (k *link) serve() {
	for {
		in, err := k.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", k.to)
		if err != nil || !k.keep(in, out) {
			_ = in.Close()
			if err == nil {
				_ = out.Close()
			}
			continue
		}
		k.wg.Go(func() { k.pass(in, out) })
		k.wg.Go(func() { k.pass(out, in) })
	}
}

// keep notes a connection; false: the link is cut.
func (k *link) keep(conns ...net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range conns {
		k.conns[c] = !k.isCut
	}
	return !k.isCut
}

func (k *link) pass(from, to net.Conn) {
	_, _ = io.Copy(to, from) // ends with the connection
	_, _ = from.Close(), to.Close()
	k.mu.Lock()
	delete(k.conns, from)
	k.mu.Unlock()
}

// set cuts the link, or mends it.
func (k *link) set(cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.isCut = cut
	for c := range k.conns {
		if cut {
			_ = c.Close()
			delete(k.conns, c)
		}
	}
}
