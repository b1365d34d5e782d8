package chaos

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
)

const moveEvery = 300 * time.Millisecond

// replicaMoves needs more brokers than a partition has replicas.
var replicaMoves = nemesis{"replica moves", usual, (*round).moving}

// moving asks brokers to move one replica after the other. Chance chooses the broker
// that is asked, and whether the move is possible.
func (r *round) moving() func() {
	ctx, cancel := context.WithCancel(r.t.Context())
	random := rand.New(rand.NewPCG(r.Uint64(), 0)) // the round's is the test's own goroutine's
	var wg sync.WaitGroup
	wg.Go(func() { // ends when healed, or with the test
		for ctx.Err() == nil {
			r.move(random)
			select {
			case <-ctx.Done():
			case <-time.After(moveEvery):
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// move asks for one.
func (c *cluster) move(random *rand.Rand) {
	asked, to := c.brokers[random.IntN(len(c.brokers))], c.brokers[random.IntN(len(c.brokers))]
	all := c.topicsAt(asked)
	if len(all) == 0 {
		return
	}
	v := all[random.IntN(len(all))]
	p := v.Partitions[random.IntN(len(v.Partitions))]
	if slices.Contains(p.Replicas, ident.Node(to.name)) {
		return
	}
	from := p.Replicas[random.IntN(len(p.Replicas))]
	q := url.Values{"topic": {v.Topic}, "partition": {strconv.Itoa(p.Partition)}, "from": {string(from)}, "to": {to.name}}
	resp, err := c.client.Post("http://"+asked.http()+"/v1/topic/move?"+q.Encode(), "", nil)
	if err != nil {
		return
	}
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		c.moves.Add(1)
	}
}
