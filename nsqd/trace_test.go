package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// A message is traced through its states in a channel: waiting, in flight with its client, deferred, waiting again, finished.
// A channel that began after it says so.
func TestTrace(t *testing.T) {
	r := newRig(Options{MsgTimeoutMS: 1000})
	c := r.channel(t, "ch", ChannelOptions{})
	r.publishN(1)
	r.channel(t, "late", ChannelOptions{Origin: FromLatest})
	state := func() api.ChannelTrace {
		list := r.Trace(0, nil)
		require.Len(t, list, 2)
		require.Equal(t, api.ChannelTrace{Channel: "late", State: api.TraceBefore}, list[1])
		return list[0]
	}
	require.Equal(t, api.ChannelTrace{Channel: "ch", State: api.TraceWaiting}, state())
	s := &Subscriber{Client: func() []api.ClientStats { return []api.ClientStats{{RemoteAddress: "192.0.2.1:9"}} }}
	require.NoError(t, c.Attach(s))
	require.Len(t, c.Pull(s, 1, nil), 1)
	now := r.clock.now()
	require.Equal(t, api.ChannelTrace{Channel: "ch", State: api.TraceInFlight, Attempts: 1, Deadline: now + 1000*nsPerMS, Clients: []string{"192.0.2.1:9"}}, state())
	require.NoError(t, c.Requeue(s, c.of(0, 0), 500))
	require.Equal(t, api.ChannelTrace{Channel: "ch", State: api.TraceDeferred, Attempts: 1, Deadline: now + 500*nsPerMS}, state())
	r.tick(600)
	require.Equal(t, api.ChannelTrace{Channel: "ch", State: api.TraceWaiting, Attempts: 1}, state())
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Finish(s, c.of(0, 1)))
	require.Equal(t, api.ChannelTrace{Channel: "ch", State: api.TraceFinished}, state())
}

// A dead message is on its way to the dead letters until it is moved.
func TestTraceOfADeadMessage(t *testing.T) {
	r, c, s := delivered(t, Options{Policy: func(string) Policy { return Policy{MaxAttempts: 1} }}, "ch", ChannelOptions{}, 1, 1)
	require.NoError(t, c.Requeue(s, c.of(ident.Sequence(0), 0), 0))
	require.Equal(t, []api.ChannelTrace{{Channel: "ch", State: api.TraceDying, Attempts: 1}}, r.Trace(0, nil))
}
