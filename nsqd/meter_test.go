package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOldValuesDropOut: a value counts for at most the window.
func TestOldValuesDropOut(t *testing.T) {
	require.Nil(t, newLatency(nil, 1000, 0), "nothing is measured")
	l := newLatency([]float64{0.5}, 1000, 0)
	at := func(now int64) int {
		var m mergedLatency
		m.add(l, now)
		return m.result().Count
	}
	l.insert(7, 100)
	l.insert(7, 600)
	require.Equal(t, 2, at(900))
	require.Equal(t, 1, at(1000), "the first half")
	require.Zero(t, at(1500))
}

// TestSeveralChannelsAreOneEstimate: also alongside a channel that measures nothing.
func TestSeveralChannelsAreOneEstimate(t *testing.T) {
	a, b := newLatency([]float64{0.5, 1}, 1000, 0), newLatency([]float64{0.5, 1}, 1000, 0)
	for n := range int64(50) {
		a.insert(n, 1)
		b.insert(50+n, 1)
	}
	var m mergedLatency
	m.add(a, 2)
	m.add(nil, 2)
	m.add(b, 2)
	r := m.result()
	require.Equal(t, 100, r.Count)
	require.InDelta(t, 50, r.Percentiles[0].Value, 3)
	require.InDelta(t, 99, r.Percentiles[1].Value, 1)
	require.Empty(t, (&mergedLatency{}).result().Percentiles)
}

// TestCountsStandUnderTheName: a channel that is created again continues with its counts; one that is deleted leaves none.
func TestCountsStandUnderTheName(t *testing.T) {
	var w works
	w.of("a").Requeues.Add(2)
	w.of("b")
	w.of("a").Timeouts.Add(1)
	require.Equal(t, map[string]channelWork{"a": {Requeued: 2, TimedOut: 1}}, w.channels(), "b has done nothing")
	w.forget("a")
	require.Empty(t, w.channels())

	sum := Work{Messages: 1}
	sum.Add(Work{Messages: 2, Bytes: 3, Channels: map[string]channelWork{"a": {Filtered: 1}}})
	sum.Add(Work{Channels: map[string]channelWork{"a": {Filtered: 1, Requeued: 4}}})
	require.Equal(t, Work{Messages: 3, Bytes: 3, Channels: map[string]channelWork{"a": {Filtered: 2, Requeued: 4}}}, sum)
}
