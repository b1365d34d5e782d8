package speed

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// TestFirstPutToNewTopics: a put to a topic that does not exist makes it, with
// three replicas, and is answered soon, whichever broker it was sent to.
func TestFirstPutToNewTopics(t *testing.T) {
	c := e2etest.Start(t, 3)
	var took []time.Duration
	for _, b := range c.Brokers {
		p, err := nsq.NewProducer(b.TCP, nsq.NewConfig())
		require.NoError(t, err)
		p.SetLogger(clusters.Silent(), nsq.LogLevelError)
		require.NoError(t, p.Ping())
		for i := range e2etest.Rounds(10, 100) {
			began := time.Now()
			require.NoError(t, p.Publish(fmt.Sprintf("new-at-%s-%d", b.Name, i), []byte("first")))
			took = append(took, time.Since(began))
		}
		p.Stop()
	}
	slices.Sort(took)
	p50, p99 := took[len(took)/2], took[len(took)*99/100]
	t.Logf("first put to %d new topics: p50 %s, p99 %s, worst %s; promised 300 ms", len(took),
		p50.Round(time.Millisecond), p99.Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	require.Less(t, p50, e2etest.Slack(300*time.Millisecond))
}
