package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestPace: channels far behind rest only while there are puts, and read more at a
// time for as long as their rests end in time.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPace()
		require.Zero(t, p.Burst(), "nobody has put anything")
		p.put(time.Now())
		require.Equal(t, burstLeast, p.Burst())

		woken := 0
		rest := func() {
			p.Pause(func() { woken++ })
			time.Sleep(restTime)
			synctest.Wait()
		}
		rest()
		require.Equal(t, 1, woken)
		require.Equal(t, burstLeast+burstStep, p.Burst())
		for range burstMost / burstStep {
			rest()
			p.put(time.Now())
		}
		require.Equal(t, burstMost, p.Burst())

		time.Sleep(putsLately)
		require.Equal(t, burstMost, p.Burst())
		time.Sleep(time.Nanosecond)
		require.Zero(t, p.Burst(), "nobody puts any more")
	})
}

// TestPaceOfABusyMachine: rests that end late halve the bursts, those that overlap
// once.
func TestPaceOfABusyMachine(t *testing.T) {
	p := newPace()
	now := time.Now()
	p.put(now.Add(time.Hour)) // whatever the clock says
	p.burst.Store(burstMost)
	end := now.Add(restTime + restLate + 1)
	p.ended(now, end)
	require.Equal(t, burstMost/2, p.Burst())
	p.ended(now, end)
	p.ended(end.Add(-1), end.Add(restTime*2))
	require.Equal(t, burstMost/2, p.Burst(), "they began before")
	p.ended(end.Add(1), end.Add(2+restTime+restLate))
	require.Equal(t, burstMost/4, p.Burst())
	for range 20 {
		now = now.Add(time.Hour)
		p.ended(now, now.Add(time.Minute))
	}
	require.Equal(t, burstLeast, p.Burst(), "it never stands still")
	p.ended(now, now.Add(restTime+restLate))
	require.Equal(t, burstLeast+burstStep, p.Burst())
}

// TestPaceIsNotifiedOfPuts: the loop notifies of puts, and not of channels' changes.
func TestPaceIsNotifiedOfPuts(t *testing.T) {
	r, handle := gathering()
	r.kind = queue.WriteState
	handle(putOf(100))
	require.Zero(t, r.pace.lastPut.Load())
	handle(event{kind: eventSynced, token: r.tokens[0]})
	r.kind = queue.WriteAppend
	handle(putOf(100))
	require.NotZero(t, r.pace.lastPut.Load())
}
