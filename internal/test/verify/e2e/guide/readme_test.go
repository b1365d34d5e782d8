package guide

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// readmePath is the README, in the module that has the client library.
const readmePath = "../../../../../README.md"

// blocks are the pieces of code in the README that are marked with a language.
func blocks(t *testing.T, language string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(readmePath)
	require.NoError(t, err)
	for rest := string(text); ; {
		_, after, found := strings.Cut(rest, "```"+language+"\n")
		if !found {
			return out
		}
		block, next, closed := strings.Cut(after, "```\n")
		require.True(t, closed)
		out, rest = append(out, block), next
	}
}

// TestReadme pastes the README: its commands, in their order, and its program.
func TestReadme(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		env.Missing(t, "curl", err)
	}
	c := e2etest.Start(t, 3)
	t.Cleanup(func() { _ = c.StopAll(e2etest.StopLimit) }) // the one that `dev` starts
	var ports []string
	for i, b := range c.Brokers {
		ports = append(ports, fmt.Sprintf("127.0.0.1:4%d50", i+1), b.TCP, fmt.Sprintf("127.0.0.1:4%d51", i+1), b.HTTP)
	}
	here := strings.NewReplacer(append(ports, "bin/nsqctl", e2etest.Built.Path("nsqctl"))...)
	home := t.TempDir()
	require.NoError(t, os.Symlink(c.Dir, filepath.Join(home, "data"))) // as `make run` leaves it
	paste := func(dir, name string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}

	commands := blocks(t, "sh")
	require.Len(t, commands, 3)
	out := paste(home, "sh", "-e", "-c", here.Replace(commands[1]))
	require.Contains(t, out, "hello\n")
	require.Contains(t, out, "to another broker\n")

	programs := blocks(t, "go")
	require.Len(t, programs, 1)
	source := filepath.Join(home, "main.go")
	require.NoError(t, os.WriteFile(source, []byte(here.Replace(programs[0])), 0o600))
	program := filepath.Join(home, "greet")
	paste(filepath.Dir(readmePath), "go", "build", "-o", program, source)
	require.Contains(t, paste(home, program), "from Go\n")

	out = paste(home, "sh", "-e", "-c", here.Replace(commands[2]))
	require.Contains(t, out, "OK")
	require.Equal(t, 2, strings.Count(out, "topic greetings, id"), "also while n1 is dead: %s", out)
	require.Contains(t, out, "n1 runs, pid ")
	c.Whole("greetings")
}
