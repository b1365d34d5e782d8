package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOldValuesDropOut: a value counts for at most the window.
func TestOldValuesDropOut(t *testing.T) {
	require.Nil(t, NewLatency(nil, 1000, 0), "nothing is measured")
	l := NewLatency([]float64{0.5}, 1000, 0)
	at := func(now int64) int {
		var m Merged
		m.Add(l, now)
		return m.Result().Count
	}
	l.Insert(7, 100)
	l.Insert(7, 600)
	require.Equal(t, 2, at(900))
	require.Equal(t, 1, at(1000), "the first half")
	require.Zero(t, at(1500))
}

// TestSeveralChannelsAreOneEstimate: also beside a channel that measures nothing.
func TestSeveralChannelsAreOneEstimate(t *testing.T) {
	a, b := NewLatency([]float64{0.5, 1}, 1000, 0), NewLatency([]float64{0.5, 1}, 1000, 0)
	for n := range int64(50) {
		a.Insert(n, 1)
		b.Insert(50+n, 1)
	}
	var m Merged
	m.Add(a, 2)
	m.Add(nil, 2)
	m.Add(b, 2)
	r := m.Result()
	require.Equal(t, 100, r.Count)
	require.InDelta(t, 50, r.Percentiles[0].Value, 3)
	require.InDelta(t, 99, r.Percentiles[1].Value, 1)
	require.Empty(t, (&Merged{}).Result().Percentiles)
}

// TestCountsStandUnderTheName: a channel that is created again continues with its counts; one that is deleted leaves none.
func TestCountsStandUnderTheName(t *testing.T) {
	var w Works
	w.Of("a").Requeues.Add(2)
	w.Of("b")
	w.Of("a").Timeouts.Add(1)
	require.Equal(t, map[string]ChannelWork{"a": {Requeued: 2, TimedOut: 1}}, w.Channels(), "b has done nothing")
	w.Forget("a")
	require.Empty(t, w.Channels())

	sum := Work{Messages: 1}
	sum.Add(Work{Messages: 2, Bytes: 3, Channels: map[string]ChannelWork{"a": {Filtered: 1}}})
	sum.Add(Work{Channels: map[string]ChannelWork{"a": {Filtered: 1, Requeued: 4}}})
	require.Equal(t, Work{Messages: 3, Bytes: 3, Channels: map[string]ChannelWork{"a": {Filtered: 2, Requeued: 4}}}, sum)
}
