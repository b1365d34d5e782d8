package guide

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// TestOutboxGuide runs the program of docs/guide/outbox.md. Its relay is killed several times between the
// answer to a put and the deletion of the row, and the leader of a topic once. Each message of both topics
// is stored once, and the repeats were recognised.
func TestOutboxGuide(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	r := newReader(t)
	const orders = 40
	for _, topic := range []string{"shipping", "mails"} {
		r.Create(topic, "archive", 2)
	}
	program := filepath.Join(r.home, "outbox")
	built := false
	for _, piece := range guidePieces(t, "outbox.md") {
		if piece.language == "go" {
			r.run(guideFolder, "go", "build", "-o", program, r.file("main.go", piece.text))
			built = true
		}
	}
	require.True(t, built, "the page has a program")
	r.run(r.home, program, "order", "40")

	recognised := 0
	relay := func(lines int) { // killed after so many lines; 0: at its end
		cmd := exec.CommandContext(t.Context(), program, "relay")
		cmd.Dir = r.home
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		n := 0
		for scan := bufio.NewScanner(out); scan.Scan(); {
			if strings.HasPrefix(scan.Text(), "recognised ") {
				recognised++
			}
			if n++; n == lines {
				require.NoError(t, cmd.Process.Kill())
			}
		}
		if err := cmd.Wait(); lines == 0 {
			require.NoError(t, err)
		}
	}
	for _, lines := range []int{7, 15, 3} { // rows are deleted by tens
		relay(lines)
	}
	require.NotZero(t, recognised)
	leader := r.LeaderOf("mails", 0)
	r.Crash(leader)
	relay(15)
	relay(0)
	r.Restart(leader)

	var left struct{ Orders, Outbox []any }
	text, err := os.ReadFile(filepath.Join(r.home, "database.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &left))
	require.Len(t, left.Orders, orders)
	require.Empty(t, left.Outbox)
	for _, topic := range []string{"shipping", "mails"} {
		r.Whole(topic)
		bodies := map[string]int{}
		for _, m := range r.PeekAll(topic) {
			bodies[m.Body]++
		}
		require.Len(t, bodies, orders)
		for body, n := range bodies {
			require.Equal(t, 1, n, body)
		}
	}
	t.Logf("%d messages that were published again were recognised", recognised)
}
