package guide

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// guideFolder has the pages whose commands are run.
const guideFolder = "../../../../../docs/guide/"

// guidePiece is a piece of code of a page.
type guidePiece struct{ language, text string }

var guideFence = regexp.MustCompile("(?ms)^```([a-z]+)(?: [a-z-]+)?\n(.*?)^```$")

func guidePieces(t *testing.T, page string) (blocks []guidePiece) {
	t.Helper()
	text, err := os.ReadFile(guideFolder + page)
	require.NoError(t, err)
	for _, m := range guideFence.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, guidePiece{m[1], m[2]})
	}
	require.NotEmpty(t, blocks, page)
	return blocks
}

// reader follows pages of the guide at a cluster of three.
type reader struct {
	*e2etest.Cluster
	here *strings.Replacer // the addresses of the guide become those of the cluster
	home string
	bin  string // where nsqctl is
}

func newReader(t *testing.T) *reader {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		env.Missing(t, "curl", err)
	}
	c := e2etest.Start(t, 3)
	t.Cleanup(func() { _ = c.StopAll(e2etest.StopLimit) }) // those that `dev` starts
	var ports []string
	for i, b := range c.Brokers {
		_, tcp, _ := strings.Cut(b.TCP, ":")
		ports = append(ports, fmt.Sprintf("127.0.0.1:4%d50", i+1), b.TCP, fmt.Sprintf("127.0.0.1:4%d51", i+1), b.HTTP,
			fmt.Sprintf(`"127.0.0.1", 4%d50`, i+1), `"127.0.0.1", `+tcp)
	}
	home := t.TempDir()
	require.NoError(t, os.Symlink(c.Dir, filepath.Join(home, "data"))) // as `make run` leaves it
	return &reader{Cluster: c, here: strings.NewReplacer(ports...), home: home, bin: filepath.Dir(e2etest.Built.Path("nsqctl"))}
}

// run starts a program in the reader's directory and returns its output.
func (r *reader) run(dir, name string, args ...string) string {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+r.bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(r.T, err, "%s %s\n%s", name, args, out)
	return string(out)
}

func (r *reader) file(name, text string) string {
	r.T.Helper()
	path := filepath.Join(r.home, name)
	require.NoError(r.T, os.WriteFile(path, []byte(r.here.Replace(text)), 0o600))
	return path
}

// shell runs commands and compares their output with the block of text behind them, if there
// is one: each of its lines is in the output, in this order; … stands for anything.
func (r *reader) shell(blocks []guidePiece, i int) {
	r.T.Helper()
	out := r.run(r.home, "sh", "-e", "-c", r.here.Replace(blocks[i].text))
	if i+1 == len(blocks) || blocks[i+1].language != "text" {
		return
	}
	rest := out
	for line := range strings.Lines(blocks[i+1].text) {
		want := regexp.MustCompile("(?m)" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(line)), "…", ".*"))
		found := want.FindStringIndex(rest)
		require.NotNil(r.T, found, "%q is not in the output of\n%s\nwhich is\n%s", line, blocks[i].text, out)
		rest = rest[found[1]:]
	}
}

// TestGuide follows the pages of the guide: their commands, in their order.
func TestGuide(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	r := newReader(t)
	for _, page := range []string{"messages.md", "concepts.md"} {
		blocks := guidePieces(t, page)
		for i, b := range blocks {
			if b.language != "sh" {
				continue
			}
			r.shell(blocks, i)
		}
	}
	r.Whole("accounts")
}

// TestGuideClients runs the programs of clients.md that can run here.
func TestGuideClients(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	for _, program := range []string{"python3", "node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			env.Missing(t, program, err)
		}
	}
	r := newReader(t)
	blocks := guidePieces(t, "clients.md")
	for i, b := range blocks {
		switch b.language {
		case "sh":
			r.shell(blocks, i)
		case "go": // TestGuideSurvivor
			require.Contains(t, b.text, "survivor")
		case "python":
			require.Equal(t, "from Python\n", r.run(r.home, "python3", r.file("greet.py", b.text)))
		case "js":
			r.npm("nsqjs@0.13.0")
			require.Equal(t, "from Node\n", r.run(r.home, "node", r.file("greet.js", b.text)))
		case "text":
		default:
			t.Errorf("a program in %s is not run", b.language)
		}
	}
}

// TestGuideSurvivor: the producer of clients.md publishes each line once, although the broker that it is connected to is
// killed, and then the next one.
func TestGuideSurvivor(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	r := newReader(t)
	program := filepath.Join(r.home, "survive")
	blocks := guidePieces(t, "clients.md")
	for i, b := range blocks {
		switch {
		case b.language == "go" && strings.Contains(b.text, "survivor"):
			r.run(guideFolder, "go", "build", "-o", program, r.file("main.go", b.text))
		case b.language == "sh" && strings.Contains(b.text, "create lines"):
			r.shell(blocks, i)
		}
	}
	const lines = 60
	cmd := exec.CommandContext(t.Context(), program)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	stored := bufio.NewScanner(out)
	for i := range lines {
		switch i {
		case lines / 3: // it is connected to the first broker
			r.Crash(r.Brokers[0].Name)
		case lines / 2:
			r.Restart(r.Brokers[0].Name)
		case 2 * lines / 3: // and now to the second one
			r.Crash(r.Brokers[1].Name)
		}
		_, err := fmt.Fprintln(in, "line", i)
		require.NoError(t, err)
		require.True(t, stored.Scan(), "the program has ended")
		require.Equal(t, fmt.Sprint("stored line ", i), stored.Text())
	}
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
	r.Restart(r.Brokers[1].Name)
	r.Whole("lines")
	times := map[string]int{}
	for _, m := range r.PeekAll("lines") {
		times[m.Body]++
	}
	require.Len(t, times, lines)
	for body, n := range times {
		require.Equal(t, 1, n, body)
	}
}

// npmLimit bounds an installation. Without a network npm tries for many minutes.
const npmLimit = 5 * time.Minute

// npm installs a package of Node next to the programs.
func (r *reader) npm(module string) {
	r.T.Helper()
	in, cancel := context.WithTimeout(r.T.Context(), npmLimit)
	defer cancel()
	cmd := exec.CommandContext(in, "npm", "install", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts", module)
	cmd.Dir, cmd.WaitDelay = r.home, time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		env.Missing(r.T, "the npm package "+module, fmt.Sprintf("%v: %s", err, out))
	}
}
