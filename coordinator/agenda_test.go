package coordinator

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
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

// TestClosedPartitionLeavesTheAgenda: a message is due in 30 days, but its topic was
// deleted. Nothing keeps the partition's channels until then.
func TestClosedPartitionLeavesTheAgenda(t *testing.T) {
	r, _ := gathering()
	b := &Broker{loops: []*loop{r.loop}}
	b.mu.hosts = map[ident.Partition]*hosted{r.host.id: r.host}
	go r.loop.run()
	defer r.loop.stop()
	inAMonth := time.Now().Add(30 * 24 * time.Hour).UnixNano()
	b.agenda.put(r.host, inAMonth)
	b.close(r.host.id)
	b.agenda.put(r.host, inAMonth) // the timer was looking at it
	require.Empty(t, b.agenda.take(inAMonth, nil))
}
