package nsqd

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	paceBody  = 64 << 10
	paceBurst = 4 // messages
)

// manualPace keeps channels paused until the test ends the pause.
type manualPace struct {
	burst  int
	pauses []func()
}

func (p *manualPace) Burst() int        { return p.burst }
func (p *manualPace) Pause(wake func()) { p.pauses = append(p.pauses, wake) }
func (p *manualPace) end(t *testing.T) {
	require.NotEmpty(t, p.pauses)
	p.pauses[0]()
	p.pauses = p.pauses[1:]
}
func (r *rig) publishLarge(n int) {
	body := make([]byte, paceBody)
	for range n {
		r.log.publish(queue.Message{Time: r.clock.now(), Body: body})
	}
	r.Advance(r.log.Committed())
}

// farBehindChannel returns a channel with enough messages to be slowed, and a subscriber. It has
// delivered one message and asked the Pace for the first time.
func farBehindChannel(t *testing.T, p *manualPace) (*rig, *Channel, *Subscriber) {
	r := newRig(Options{Pace: p})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	r.publishLarge(2*farBehind/paceBody + 1)
	<-s.Wake
	require.Len(t, c.Pull(s, 100, nil), 1)
	p.end(t)
	return r, c, s
}

// pullAll pulls until there are no messages.
func pullAll(c *Channel, s *Subscriber) (all []api.Delivery) {
	for had := -1; had < len(all); {
		had = len(all)
		all = c.Pull(s, 1000, all)
	}
	return all
}

func TestChannelFarBehindPauses(t *testing.T) {
	p := &manualPace{burst: paceBurst * paceBody}
	r, c, s := farBehindChannel(t, p)
	for range 3 {
		require.Len(t, s.Wake, 1)
		<-s.Wake
		require.Len(t, c.Pull(s, 100, nil), paceBurst)
		require.Empty(t, c.Pull(s, 100, nil), "it pauses")
		require.Len(t, p.pauses, 1)
		require.Empty(t, s.Wake)
		p.end(t)
	}
	p.burst = 0 // no further puts follow
	<-s.Wake
	require.Len(t, pullAll(c, s), 2*farBehind/paceBody-3*paceBurst)
	require.Empty(t, p.pauses)
	requireExact(t, r.Partition, c)
}

func TestChannelThatKeepsUpDoesNotPause(t *testing.T) {
	p := &manualPace{burst: paceBody}
	r := newRig(Options{Pace: p})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	for range 10 {
		r.publishLarge(farBehind/paceBody - 1)
		require.Len(t, pullAll(c, s), farBehind/paceBody-1)
	}
	require.Empty(t, p.pauses)
}

// TestPutsEndAPause: the channel is faster than its producers, however fast they are.
func TestPutsEndAPause(t *testing.T) {
	p := &manualPace{burst: paceBurst * paceBody}
	r, c, s := farBehindChannel(t, p)
	<-s.Wake
	require.Len(t, c.Pull(s, 100, nil), paceBurst)
	r.publishLarge(paceBurst/2 - 1)
	require.Empty(t, s.Wake)
	r.publishLarge(1)
	<-s.Wake
	require.Len(t, c.Pull(s, 100, nil), paceBurst)
	p.end(t) // of the pause that puts ended: the current one may end early
	<-s.Wake
}

// TestRedeliveryDoesNotPause: only new messages count for a burst.
func TestRedeliveryDoesNotPause(t *testing.T) {
	p := &manualPace{burst: paceBurst * paceBody}
	_, c, s := farBehindChannel(t, p)
	<-s.Wake
	got := c.Pull(s, 100, nil)
	require.Len(t, got, paceBurst)
	require.NoError(t, c.Requeue(s, c.of(got[1].Message.Seq, 0), 0))
	<-s.Wake
	again := c.Pull(s, 100, nil)
	require.Len(t, again, 1)
	require.Equal(t, got[1].Message.Seq, again[0].Message.Seq)
	require.Empty(t, c.Pull(s, 100, nil))
}

// TestOneBurstWakesOneSubscriber: no subscriber is woken for messages that another one takes.
func TestOneBurstWakesOneSubscriber(t *testing.T) {
	p := &manualPace{burst: paceBurst * paceBody}
	_, c, s := farBehindChannel(t, p)
	other := subscribe(t, c)
	<-other.Wake
	require.Len(t, c.Pull(other, 100, nil), paceBurst)
	<-s.Wake
	require.Empty(t, c.Pull(s, 100, nil))
	p.end(t)
	require.Equal(t, 1, len(s.Wake)+len(other.Wake))
}

// TestSeekEndsAPause: the backlog before a seek does not count at the new position.
func TestSeekEndsAPause(t *testing.T) {
	p := &manualPace{burst: paceBurst * paceBody}
	r, c, s := farBehindChannel(t, p)
	<-s.Wake
	require.Len(t, c.Pull(s, 100, nil), paceBurst)
	r.seekChannel(t, "c", seekTo(0))
	<-s.Wake
	require.NotEmpty(t, c.Pull(s, 1, nil))
}

// selfEndingPace is a Pace whose pauses end by themselves.
type selfEndingPace struct{ taken, running atomic.Int64 }

func (*selfEndingPace) Burst() int { return paceBurst * paceBody }

func (n *selfEndingPace) Pause(wake func()) {
	n.taken.Add(1)
	n.running.Add(1)
	go func() {
		defer n.running.Add(-1)
		for range 10 { // puts and pulls come in between
			runtime.Gosched()
		}
		wake()
	}()
}

// TestNoWakeUpIsLostInPauses: puts, pauses and pulls meet in all orders.
func TestNoWakeUpIsLostInPauses(t *testing.T) {
	const total = 4000
	p := &selfEndingPace{}
	r := newRig(Options{Pace: p})
	consumeConcurrently(t, r, total, func() {
		r.publishLarge(total / 2)
		for range total / 2 {
			r.publishLarge(1)
		}
	})
	require.Greater(t, p.taken.Load(), int64(total/4/paceBurst))
	wait.Until(t, func() bool { return p.running.Load() == 0 }, "no pause is running")
}
