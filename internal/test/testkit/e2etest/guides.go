package e2etest

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Guide runs the commands of a page of docs/guide.
type Guide struct {
	t        *testing.T
	commands map[string]string
	Dir      string   // where they run
	replace  []string // of the page's example hosts
	Inside   []string // a command that runs the commands, such as nsenter; none: they run here
}

// OpenGuide reads the commands of a page. here replaces its example hosts, in pairs.
func OpenGuide(t *testing.T, page string, here ...string) *Guide {
	t.Helper()
	text, err := os.ReadFile(Root + "docs/guide/" + page)
	require.NoError(t, err)
	g := &Guide{t: t, commands: map[string]string{}, Dir: t.TempDir(), replace: append([]string{"nsqctl ", Built.Path("nsqctl") + " "}, here...)}
	for _, m := range GuideBlock.FindAllStringSubmatch(string(text), -1) {
		g.commands[m[1]] += m[2]
	}
	return g
}

// Command is a block of the page, with further arguments.
func (g *Guide) Command(word string, more ...string) *exec.Cmd {
	g.t.Helper()
	require.Contains(g.t, g.commands, word, "a block of the guide")
	script := strings.NewReplacer(g.replace...).Replace(strings.TrimSpace(g.commands[word]))
	require.NotContains(g.t, script, "example")
	if len(more) > 0 {
		script = strings.Join(append([]string{script}, more...), " ")
	}
	args := append(slices.Clone(g.Inside), "sh", "-euc", "exec "+script)
	cmd := exec.CommandContext(g.t.Context(), args[0], args[1:]...)
	cmd.Dir = g.Dir
	return cmd
}

// Run runs a block and returns what it prints.
func (g *Guide) Run(word string, more ...string) (stdout, stderr string, err error) {
	g.t.Helper()
	var out, problems strings.Builder
	cmd := g.Command(word, more...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	return out.String(), problems.String(), err
}

// Must runs a block that succeeds.
func (g *Guide) Must(word string, more ...string) (stdout, stderr string) {
	g.t.Helper()
	stdout, stderr, err := g.Run(word, more...)
	require.NoError(g.t, err, "%s: %s%s", word, stdout, stderr)
	return stdout, stderr
}

// GuideBlock is a block of commands in a page of the guide: its word, and the commands.
var GuideBlock = regexp.MustCompile("(?ms)^```sh ([a-z-]+)\n(.*?)^```$")
