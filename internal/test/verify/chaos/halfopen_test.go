package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// metadataLimit is how long the metadata may take to answer when two of three members reach each
// other again: an election, and the time until a stopped broker gets no replica any more.
const metadataLimit = 8 * time.Second

// TestChaosMetadataAfterHalfOpenConnections: a broker's connections were reset while its own segments
// were lost, so that the others hold streams that are dead. Then a third broker is stopped, and the
// two others lose each other for a moment. They are a majority afterwards: the metadata answers.
func TestChaosMetadataAfterHalfOpenConnections(t *testing.T) {
	if !env.Long() {
		env.Skip(t, "two minutes, for make chaos; LOCKSTEP_LONG=1")
	}
	Inside(t)
	c := newCluster(t, 3, false)
	r := &round{c, rand.New(rand.NewPCG(0, 0))}
	for i := range 6 {
		torn, stopped, other := c.brokers[i%3], c.brokers[(i+1+i/3)%3], c.brokers[(i+2-i/3)%3]
		_, whole := within(wholeLimit, func() bool { return c.writes(other, i, "before") })
		require.True(t, whole, "the metadata does not answer before")
		heal := r.isolated(torn, bothLanes, reset)
		pause(7 * time.Second)
		heal()
		pause(2 * time.Second)
		resume := r.paused(stopped)
		pause(500 * time.Millisecond)
		heal = r.severed(between(r.numbers(torn), r.numbers(other), bothLanes, drop))
		writers, stop := sync.WaitGroup{}, make(chan struct{})
		for w := range 16 {
			writers.Go(func() {
				for n := 1000 * (w + 1); ; n++ {
					select {
					case <-stop:
						return
					default:
						c.writes([]*broker{torn, other}[w%2], n, "meanwhile")
					}
				}
			})
		}
		pause(2 * time.Second)
		heal()
		took, answers := within(metadataLimit, func() bool { return c.writes(other, i, "after") })
		t.Logf("%s torn, %s stopped: the metadata answers after %s", torn.name, stopped.name, took)
		require.True(t, answers)
		close(stop)
		writers.Wait()
		resume()
	}
}

// writes reports whether a broker changes the metadata within a second.
func (c *cluster) writes(b *broker, n int, when string) bool {
	client := http.Client{Timeout: time.Second}
	resp, err := client.Post(fmt.Sprintf("http://%s/topic/create?topic=%s%d&replication_factor=1", b.http(), when, n), "", nil)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
