package transfer

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// mirrorTest is a mirror between two sides.
type mirrorTest struct {
	t          *testing.T
	east, west *side
	state      string
}

func newMirrorTest(t *testing.T) *mirrorTest {
	return &mirrorTest{t: t, east: newSide(t, "east", 7), west: newSide(t, "west", 8), state: filepath.Join(t.TempDir(), "state")}
}

func (m *mirrorTest) args(word string, flags ...string) []string {
	return append([]string{"mirror", word, "orders", "--from-http-address", m.east.Listener.Addr().String(), "--nsqd-http-address", m.west.Listener.Addr().String(), "--state", m.state}, flags...)
}

// copy runs the mirror until it has caught up, and returns what it said.
func (m *mirrorTest) copy(flags ...string) string {
	m.t.Helper()
	t := &cli.Target{}
	out, err := clitest.Run(m.t, cli.NewRoot(t, Commands(t)...), wait.Limit, m.args("run", append([]string{"--without-channels", "--until-caught-up", "--poll=1ms", "--batch=3"}, flags...)...)...)
	require.NoError(m.t, err, out)
	return out
}

// has requires that the target has the messages, each once and in their order.
func (m *mirrorTest) has(parts ...[]string) {
	m.t.Helper()
	require.Equal(m.t, slices.Concat(parts...), m.west.bodies())
}

// TestMirrorOfASourceThatWentBack: the source is restored from a backup, and has other messages since: fewer than
// it has lost, as many, or more. The mirror copies each of them once, with its state and without.
func TestMirrorOfASourceThatWentBack(t *testing.T) {
	t.Parallel()
	for _, more := range []int{0, 1, 6, 20} {
		for _, without := range []bool{false, true} {
			for _, equal := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d others, without the state %v, equal bodies %v", more, without, equal), func(t *testing.T) {
					t.Parallel()
					m := newMirrorTest(t)
					first, second, third := numbered("a", 10), numbered("b", more), numbered("c", 8)
					if equal {
						first, second, third = slices.Repeat([]string{"x"}, 10), slices.Repeat([]string{"x"}, more), slices.Repeat([]string{"x"}, 8)
					}
					m.east.publish(first...)
					require.NotContains(t, m.copy(), "lost")
					m.east.restore(4)
					m.east.publish(second...)
					if without {
						m.state = filepath.Join(t.TempDir(), "another")
					}
					out := m.copy()
					m.has(first, second)
					require.Contains(t, out, "the source has lost messages that were copied", "it says so")
					m.east.publish(third...)
					m.copy()
					m.has(first, second, third)
					m.state = filepath.Join(t.TempDir(), "another again")
					m.copy()
					m.has(first, second, third)
				})
			}
		}
	}
}

// TestMirrorOfATargetThatWentBack: the target is restored from a backup, and has other messages since. The lost
// copies are made again.
func TestMirrorOfATargetThatWentBack(t *testing.T) {
	t.Parallel()
	for _, others := range []int{0, 3, 6, 20} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			t.Parallel()
			m := newMirrorTest(t)
			first, own := numbered("a", 10), numbered("own", others)
			m.east.publish(first...)
			m.copy()
			m.west.restore(4)
			m.west.publish(own...)
			require.Contains(t, m.copy(), "the target has lost messages that were copied")
			m.has(first[:4], own, first[4:])
			m.copy()
			m.has(first[:4], own, first[4:])
		})
	}
}

// TestMirrorOfTrimmedLogs: messages that retention has removed on either side do not count as lost.
func TestMirrorOfTrimmedLogs(t *testing.T) {
	m := newMirrorTest(t)
	m.east.publish(numbered("a", 10)...)
	m.copy()
	m.east.trim(10)
	m.west.trim(10)
	m.east.publish("b")
	require.NotContains(t, m.copy(), "lost")
	m.has([]string{"b"})
	m.west.publish(numbered("own", 5)...)
	m.west.trim(14)
	require.NotContains(t, m.copy(), "lost")
	m.has([]string{"own3", "own4"})
}

// TestARunningMirrorNoticesALossWithoutPuts: both sides go back while the mirror runs and nothing is published.
func TestARunningMirrorNoticesALossWithoutPuts(t *testing.T) {
	t.Parallel()
	m := newMirrorTest(t)
	first := numbered("a", 10)
	m.east.publish(first...)
	target := &cli.Target{}
	r := clitest.Begin(t, cli.NewRoot(target, Commands(target)...), m.args("run", "--without-channels", "--poll=1ms")...)
	wait.Until(t, func() bool { return len(m.west.bodies()) == 10 }, "the copies")
	m.west.restore(4)
	wait.Until(t, func() bool { return len(m.west.bodies()) == 10 }, "the copies, again")
	require.Contains(t, r.Said(), "the target has lost messages")
	m.has(first)
	m.east.restore(4)
	wait.Until(t, func() bool { return strings.Contains(r.Said(), "the source has lost messages") }, "the loss is noticed")
	m.east.publish("b")
	wait.Until(t, func() bool { return len(m.west.bodies()) == 11 }, "the new one")
	m.has(first, []string{"b"})
	r.Cancel()
	require.NoError(t, r.Ends())
}

// TestATargetThatWentBackToAnotherHistory: the source went back and continued in another way, which a running mirror has copied; then
// the target goes back to the time before that. Its newest copies are of messages that the source has lost, with sequences
// that the source has: the mirror continues where the histories part.
func TestATargetThatWentBackToAnotherHistory(t *testing.T) {
	t.Parallel()
	m := newMirrorTest(t)
	first, second := numbered("a", 10), numbered("b", 8)
	m.east.publish(first...)
	target := &cli.Target{}
	r := clitest.Begin(t, cli.NewRoot(target, Commands(target)...), m.args("run", "--without-channels", "--poll=1ms")...)
	wait.Until(t, func() bool { return len(m.west.bodies()) == 10 }, "the copies")
	m.east.restore(4)
	m.east.publish(second...)
	wait.Until(t, func() bool { return len(m.west.bodies()) == 18 }, "the copies of the other history")
	m.west.restore(10)
	wait.Until(t, func() bool { return strings.Contains(r.Said(), "the target has lost messages") }, "the loss is noticed")
	wait.Until(t, func() bool { return slices.Contains(m.west.bodies(), "b7") }, "the newest message")
	r.Cancel()
	require.NoError(t, r.Ends())
	m.has(first, second)
}

// TestASourceThatPassesTheNewestCopy: when the mirror begins, the source that went back is behind the newest copy, and passes it right
// after the mirror's first look.
func TestASourceThatPassesTheNewestCopy(t *testing.T) {
	t.Parallel()
	m := newMirrorTest(t)
	first, second, third := numbered("a", 10), numbered("b", 3), numbered("c", 8)
	m.east.publish(first...)
	m.copy()
	m.state = filepath.Join(t.TempDir(), "another")
	m.east.restore(4)
	m.east.publish(second...)
	m.east.mu.Lock()
	m.east.peeked = func() { m.east.publish(third...) }
	m.east.mu.Unlock()
	m.copy()
	m.has(first, second, third)
}

// TestALateCopyOfALostHistory: a put of a mirror that was killed comes late. The source has lost its messages since, and has others with their
// sequences: none of them counts as copied.
func TestALateCopyOfALostHistory(t *testing.T) {
	t.Parallel()
	for _, instead := range []bool{false, true} {
		t.Run(fmt.Sprintf("the put beside it is in doubt %v", instead), func(t *testing.T) {
			t.Parallel()
			m := newMirrorTest(t)
			first, late, second := numbered("a", 10), numbered("late", 3), numbered("b", 9)
			m.east.publish(first...)
			m.copy()
			m.east.publish(late...)
			m.west.late.instead = instead
			m.west.late.messages = m.copies(10, 13)
			m.east.restore(4)
			m.east.publish(second...)
			m.copy()
			m.has(first, late, second)
			m.state = filepath.Join(t.TempDir(), "another")
			m.copy()
			m.has(first, late, second)
		})
	}
}

// TestAPutBehindAnotherHistory: the target goes back to copies of a history that the source has lost, and receives the next put of the
// mirror before the mirror notices. So its log has copies of the new history behind a gap.
func TestAPutBehindAnotherHistory(t *testing.T) {
	t.Parallel()
	for _, gap := range []int{12, 6, 2} { // messages of the new history that the target has lost
		t.Run(fmt.Sprint(gap), func(t *testing.T) {
			t.Parallel()
			m := newMirrorTest(t)
			first, second, third := numbered("a", 10), numbered("b", gap), numbered("c", 3)
			m.east.publish(first...)
			target := &cli.Target{}
			r := clitest.Begin(t, cli.NewRoot(target, Commands(target)...), m.args("run", "--without-channels", "--poll=1h")...)
			wait.Until(t, func() bool { return len(m.west.bodies()) == 10 }, "the copies")
			m.east.restore(4)
			m.east.publish(second...)
			wait.Until(t, func() bool { return len(m.west.bodies()) == 10+gap }, "the copies of the new history")
			m.west.restore(10)
			m.east.publish(third...)
			wait.Until(t, func() bool { return len(m.west.bodies()) >= 10+gap+3 }, "all copies again")
			r.Cancel()
			require.NoError(t, r.Ends())
			m.hasEach(first, second, third)
			m.copy()
			m.hasEach(first, second, third)
			m.state = filepath.Join(t.TempDir(), "another")
			m.copy()
			m.hasEach(first, second, third)
		})
	}
}

// TestAGapWithoutAState: the mirror that left such a gap was killed, and its state is lost.
func TestAGapWithoutAState(t *testing.T) {
	t.Parallel()
	for n := range 12 { // messages of the new history before the gap
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			m := newMirrorTest(t)
			first, second := numbered("a", 10), numbered("b", 15)
			m.east.publish(first...)
			m.copy()
			m.east.restore(4)
			m.east.publish(second...)
			m.west.add(m.copies(4, 4+n)...)
			m.west.add(m.copies(4+n+2, 4+n+3)...)
			m.state = filepath.Join(t.TempDir(), "another")
			m.copy()
			m.hasEach(first, second)
			m.state = filepath.Join(t.TempDir(), "another again")
			m.copy()
			m.hasEach(first, second)
		})
	}
}

// TestAStateBehindManyCopies: a mirror was killed after several pages of copies that its saved state does not have. The
// next run reads all of them, and copies nothing twice.
func TestAStateBehindManyCopies(t *testing.T) {
	t.Parallel()
	m := newMirrorTest(t)
	m.east.publish(numbered("a", 10)...)
	m.copy()
	copied := 2*scanPage + scanPage/2
	m.east.publish(numbered("b", copied)...)
	m.west.add(m.copies(10, 10+copied)...)
	m.east.publish(numbered("c", 5)...)
	m.copy("--batch=1000")
	m.has(numbered("a", 10), numbered("b", copied), numbered("c", 5))
}

// TestABackupThatIsNewer: the source goes back, and then to a newer copy of the history before: what the target has of that is
// not copied again.
func TestABackupThatIsNewer(t *testing.T) {
	t.Parallel()
	m := newMirrorTest(t)
	first, second, third := numbered("a", 10), numbered("b", 8), numbered("c", 5)
	m.east.publish(first...)
	m.copy()
	newer := slices.Clone(m.east.log)
	m.east.restore(4)
	m.east.publish(second...)
	m.copy()
	m.east.mu.Lock()
	m.east.log = newer
	m.east.mu.Unlock()
	m.east.publish(third...)
	m.copy()
	m.has(first, second, third)
}

// copies are those of messages that the source has.
func (m *mirrorTest) copies(from, to int) (all []msgstream.Message) {
	for i, x := range m.east.log[from:to] {
		x.Header = msgstream.WithOrigin(nil, msgstream.Origin{Cluster: "east", TopicID: 7, Sequence: uint64(from + i), TimeNS: x.TimeNS})
		all = append(all, x)
	}
	return all
}

// hasEach requires that the target has each message once.
func (m *mirrorTest) hasEach(parts ...[]string) {
	m.t.Helper()
	require.ElementsMatch(m.t, slices.Concat(parts...), m.west.bodies())
}

// TestMirrorStatusOfASourceThatWentBack: it shows no lag of 0.
func TestMirrorStatusOfASourceThatWentBack(t *testing.T) {
	t.Parallel()
	m := newMirrorTest(t)
	m.east.publish(numbered("a", 10)...)
	m.copy()
	status := func() (string, error) {
		target := &cli.Target{}
		return clitest.Run(t, cli.NewRoot(target, Commands(target)...), wait.Limit, m.args("status", "-o=json")...)
	}
	out, err := status()
	require.NoError(t, err)
	require.Contains(t, out, `"lag": 0`)
	m.east.restore(4)
	for range 2 {
		out, err = status()
		require.ErrorContains(t, err, "the source has lost messages")
		require.Contains(t, out, `"lag": null`)
		m.east.publish(numbered("b", 9)...)
	}
}
