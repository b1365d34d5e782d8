package loss

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// TestTogetherAndAlone: in a topic of several partitions that recognises content, a message that came in a
// pipeline of go-nsq's PublishAsync is recognised in every other way of publishing, at every broker.
func TestTogetherAndAlone(t *testing.T) {
	t.Parallel()
	const topic, messages = "together", 400
	c := e2etest.Start(t, 3)
	c.Post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}, "partitions": {"4"}, "dedupe": {"content"}})
	c.Whole(topic)
	var producers []*nsq.Producer
	for _, b := range c.Brokers {
		p, err := nsq.NewProducer(b.TCP, nsq.NewConfig())
		require.NoError(t, err)
		p.SetLogger(clusters.Silent(), nsq.LogLevelError)
		defer p.Stop()
		producers = append(producers, p)
	}
	var bodies [][]byte
	done := make(chan *nsq.ProducerTransaction, messages)
	for i := range messages {
		bodies = append(bodies, fmt.Append(nil, "message ", i))
		require.NoError(t, producers[0].PublishAsync(topic, bodies[i], done))
	}
	for range messages {
		require.NoError(t, (<-done).Error)
	}
	for i, body := range bodies {
		switch i % 4 {
		case 0:
			require.NoError(t, producers[1].Publish(topic, body))
		case 1:
			require.NoError(t, producers[2].DeferredPublish(topic, time.Millisecond, body))
		case 2:
			require.NoError(t, producers[0].MultiPublish(topic, bodies[i:min(i+7, messages)]))
		default:
			lines := ""
			for _, b := range bodies[i:min(i+5, messages)] {
				lines += string(b) + "\n"
			}
			resp, err := http.Post("http://"+c.Brokers[i%3].HTTP+"/mpub?topic="+topic, "", strings.NewReader(lines))
			require.NoError(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, "true", resp.Header.Get("X-Nsq-Duplicate"))
		}
	}
	stored := map[string]int{}
	for _, m := range c.PeekAll(topic) {
		stored[m.Body]++
	}
	require.Len(t, stored, messages)
	for body, n := range stored {
		require.Equal(t, 1, n, "%s is stored twice", body)
	}
}
