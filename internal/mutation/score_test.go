package mutation_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/mutation"
	"github.com/lockstepmq/lockstep/internal/testenv"
)

// witness is a test that must fail when a line is switched off, and must pass
// when none is.
type witness struct{ pkg, run string }

// line is one safety-critical line with those who must notice that it is gone.
type line struct {
	name, what string
	witnesses  []witness
}

// root is the repository, seen from this package.
const root = "../../"

func simulator() witness { return witness{pkg: "internal/sim", run: "TestMutant$"} }

func powercut() witness { return witness{pkg: "internal/powercut", run: "TestAllAtOnce$"} }

func processes(run string) witness { return witness{pkg: "internal/e2e", run: run} }

// played is what is done step by step with real brokers.
func played(run string) witness { return witness{pkg: "internal/chaos", run: run} }

// lines are those of docs/robustness-mutations.md. The simulator has no files, so it
// cannot see the first.
func lines() []line {
	return []line{
		{mutation.JournalSync, "the journal syncs a group before it is durable", []witness{powercut()}},
		{replica.BreakSyncBeforeAck, "acknowledged is what is durable", []witness{simulator(), powercut(), played("TestDisksFailUnderTwo$")}},
		{replica.BreakEpochCheck, "no epoch below the promised one is answered", []witness{simulator(), played("TestStaleMarker$")}},
		{replica.BreakMaximalISR, "a proposal that may still land counts", []witness{simulator(), played("TestGrowthWithLostAnswer$")}},
		{replica.BreakMarkerGate, "nothing is served before the marker is committed", []witness{simulator(), played("TestTakenOverBeforeMarker$")}},
		{mutation.PayloadCRC, "a batch passes its checksum", []witness{simulator(), {pkg: "cmd/nsqd", run: "TestFlippedBit$"}}},
		{replica.BreakRollbackEpoch, "nothing is taken back but under a new epoch", []witness{simulator(), processes("TestRolledBackIsFinal$")}},
		{replica.BreakRollbackAnswer, "rolled back is said when the marker is committed", []witness{simulator(), processes("TestRolledBackIsFinal$")}},
		{replica.BreakStoreID, "another store is another member", []witness{simulator(), processes("TestWipedAlone$")}},
		{replica.BreakVisible, "delivered is what is committed", []witness{simulator(), processes("TestRollback$")}},
		{replica.BreakRequestID, "a repeated put is recognised", []witness{simulator(), processes("TestRecordsThroughLeaderKills$")}},
		{mutation.TombstoneRead, "files go on a tombstone's word alone", []witness{simulator(), processes("TestLostMetadata$")}},
	}
}

// TestScore switches each line off and runs its witnesses: each must fail, by a
// failed check. With none switched off each must pass. LOCKSTEP_LINE runs one.
func TestScore(t *testing.T) {
	if !testenv.Long() {
		t.Skip("half an hour; see make sim-mutations")
	}
	var table strings.Builder
	controlled := map[string]bool{}
	for _, l := range lines() {
		if only := os.Getenv("LOCKSTEP_LINE"); only != "" && only != l.name {
			continue
		}
		for _, w := range l.witnesses {
			if !controlled[w.String()] {
				controlled[w.String()] = true
				out, err := w.test("")
				require.NoError(t, err, "%s fails without a mutation:\n%s", w, out)
			}
			said := w.notices(t, l.name)
			fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", l.name, l.what, w, said)
			t.Logf("%s: %s: %s", l.name, w, said)
		}
	}
	t.Log("\n" + table.String())
}

// tries is how often real processes may run before they have to notice: what they
// do first when they wake up is a matter of chance.
const tries = 3

// notices switches a line off and gives what the witness says then.
func (w witness) notices(t *testing.T, mutant string) string {
	t.Helper()
	for try := 1; ; try++ {
		out, err := w.test(mutant)
		said := verdict(out)
		switch {
		case err != nil && said != "" && try > 1:
			return fmt.Sprintf("%s (try %d)", said, try)
		case err != nil && said != "":
			return said
		case try == tries:
			t.Errorf("%s: %s does not notice\n%s", mutant, w, tail(out))
			return "NOT NOTICED"
		}
	}
}

// String is the witness as a command names it.
func (w witness) String() string {
	return w.pkg + " " + strings.TrimSuffix(w.run, "$")
}

// limit is far above what a witness takes.
const limit = 15 * time.Minute

func (w witness) test(mutant string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-tags", "mutation", "-count=1", "-v", "-run", w.run, root+w.pkg)
	cmd.Env = append(os.Environ(), "LOCKSTEP_LONG=", "LOCKSTEP_MUTATION="+mutant)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// saids are where a failed check says what is wrong: the simulator, the judge of
// histories, power cuts, a broker that ended, testify.
var saids = []*regexp.Regexp{
	regexp.MustCompile(`seed \d+ \([a-z ]+\): [^\n]*`),
	regexp.MustCompile(`(?m)^[ \t]*(lost|unexpected|refused|rolled back|duplicate|rewritten|hole|reordered): [^\n]*`),
	regexp.MustCompile(`(?m)^ *[a-z0-9_]+\.go:\d+: (n\d+ ended by itself|waited)[^\n]*`),
	regexp.MustCompile(`panic: [^\n]*`),
	regexp.MustCompile(`(?s)Received unexpected error:\s+[^\n]*`),
	regexp.MustCompile(`Error: +\t?[^\n]*`),
}

// verdict is the first of what a failed test says.
func verdict(out string) string {
	if !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "panic: ") {
		return ""
	}
	for _, r := range saids {
		if s := r.FindString(out); s != "" {
			const enough = 160
			s = strings.Join(strings.Fields(s), " ")
			return s[:min(len(s), enough)]
		}
	}
	return "failed"
}

func tail(out string) string { return out[max(0, len(out)-2000):] }
