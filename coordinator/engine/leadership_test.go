package engine

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// scripted is a machine whose view the test chooses.
type scripted struct{ view replica.View }

func (s *scripted) Step(replica.Event, *replica.Effects) {}
func (s *scripted) View() replica.View                   { return s.view }
func (s *scripted) Idle() bool                           { return true }
func (s *scripted) Committing() bool                     { return false }

// newScripted is a partition with one message and one channel. show has the core loop run
// one pass after which the machine is in this role, under this epoch.
func newScripted(t *testing.T) (channel *nsqd.Channel, show func(replica.Role, ident.Epoch)) {
	a := newAlone(t)
	l := newLoop(a.e.o, nil, a.e.pace)
	m := &scripted{}
	a.p.loop, a.p.machine = l, m
	l.hosted[a.p.id] = a.p
	channel, err := a.p.queue.CreateChannel(t.Context(), "billing", nsqd.ChannelOptions{Origin: nsqd.FromEarliest})
	require.NoError(t, err)
	a.say("m0")
	a.p.queue.Unlead()
	a.p.view.Store(&replica.View{})
	return channel, func(r replica.Role, e ident.Epoch) {
		m.view = replica.View{Role: r, Epoch: e, Committed: a.end, End: a.end, Held: m.view.Held + 1}
		l.post(a.p.id, replica.Tick{})
		l.run.Lock()
		defer l.run.Unlock()
		l.pass(false, false)
	}
}

// consume attaches a consumer and gives it the message.
func consume(t *testing.T, c *nsqd.Channel) (s *nsqd.Subscriber, under ident.Epoch) {
	t.Helper()
	s = &nsqd.Subscriber{Direct: true}
	require.NoError(t, c.Attach(s))
	got := c.Pull(s, 1, nil)
	require.Len(t, got, 1)
	return s, got[0].Epoch
}

func ended(s *nsqd.Subscriber) bool {
	select {
	case <-s.Lost:
		return true
	default:
		return false
	}
}

// TestChannelsEndWithTheLeadership: a leader that no longer is one, or leads under another
// epoch, ends its channels' service, and messages in flight there no longer count. The
// epoch of the view need not change for that: a leader that transfers leadership, or lost its
// registration, does not have the next one yet. The next leadership here serves under its
// own epoch, which is the fencing token of its deliveries.
func TestChannelsEndWithTheLeadership(t *testing.T) {
	for name, next := range map[string]struct {
		role  replica.Role
		epoch ident.Epoch
	}{
		"lost its registration":             {replica.Follower, 1},
		"has nobody to follow":              {replica.Idle, 1},
		"stands for election":               {replica.Candidate, 1},
		"follows the next leader":           {replica.Follower, 2},
		"opens an epoch, to roll back":      {replica.Electing, 2},
		"its store failed":                  {replica.Stopped, 1},
		"leads again, with no role between": {replica.Leader, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, show := newScripted(t)
				show(replica.Leader, 1)
				s, under := consume(t, c)
				require.EqualValues(t, 1, under)

				show(next.role, next.epoch)
				require.True(t, ended(s), "its consumers are served on")
				require.ErrorIs(t, c.Err(s), nsqd.ErrNotLeader)
				require.Error(t, c.Finish(s, nsqd.Receipt{Epoch: 1, Number: 1}))
				last := next.epoch
				if next.role != replica.Leader {
					require.ErrorIs(t, c.Attach(&nsqd.Subscriber{}), nsqd.ErrNotLeader)
					last++
					show(replica.Leader, last)
				}
				_, under = consume(t, c)
				require.Equal(t, last, under)
			})
		})
	}
}

// TestChannelsServeOnUnderTheSameEpoch: other changes of a leader's view end nothing.
func TestChannelsServeOnUnderTheSameEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, show := newScripted(t)
		show(replica.Follower, 1)
		show(replica.Electing, 2)
		show(replica.Leader, 2)
		s, under := consume(t, c)
		require.EqualValues(t, 2, under)
		show(replica.Leader, 2) // one more put is held
		require.False(t, ended(s))
		require.NoError(t, c.Finish(s, nsqd.Receipt{Epoch: 2, Number: 1}))
	})
}
