package coordinator

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAgendaGivesWhatIsDueOnce(t *testing.T) {
	var a agenda
	rng := rand.New(rand.NewPCG(1, 2))
	all, want := make([]*hosted, 100), map[*hosted]int64{}
	for i := range all {
		all[i] = &hosted{}
	}
	for range 1000 {
		h, at := all[rng.IntN(len(all))], rng.Int64N(1000)
		a.put(h, at)
		if was, ok := want[h]; !ok || at < was {
			want[h] = at
		}
	}
	for now := int64(0); now < 1000; now += 10 {
		for _, h := range a.take(now, nil) {
			require.LessOrEqual(t, want[h], now)
			require.Greater(t, want[h], now-10, "given too late")
			delete(want, h)
		}
	}
	require.Empty(t, want)
}
