package speed

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/bench"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// costlyPut is one way of publishing, with the rates that were measured.
type costlyPut struct {
	name, topic string
	encode      func(b []byte, topic, id, body string) []byte
	rates       []float64
	puts        int64
	cpu         time.Duration // of all brokers
}

func plainPut(b []byte, topic, _, body string) []byte {
	b = fmt.Appendf(b, "PUB %s\n", topic)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(body))), body...)
}

// headedPut gives the id under a name, so that two ways differ in the name alone.
func headedPut(name string) func(b []byte, topic, id, body string) []byte {
	return func(b []byte, topic, id, body string) []byte {
		header := `{"` + name + `":"` + id + `"}`
		b = fmt.Appendf(b, "PUB_EXT %s\n", topic)
		b = binary.BigEndian.AppendUint32(b, uint32(2+len(header)+len(body)))
		b = binary.BigEndian.AppendUint16(b, uint16(len(header)))
		return append(append(b, header...), body...)
	}
}

// TestCostOfIDs measures puts a second of 64 producers that wait for each answer, in turns: without ids, with a
// header, with an id in its place, and without ids to a topic that recognises content. LOCKSTEP_LONG makes it 40
// rounds of 0.7 s each; the short form only sees that all puts are stored. The processor time of the brokers for
// each put depends less on other work alongside the test than the rate does.
func TestCostOfIDs(t *testing.T) {
	const producers = 64
	c := e2etest.Start(t, 3)
	create := func(topic, dedupe string) (leader string) {
		c.Post(c.Brokers[0], "/topic/create", url.Values{"topic": {topic}, "dedupe_window": {"30s"}, "dedupe": {dedupe}})
		c.Whole(topic)
		return c.LeaderOf(topic, 0)
	}
	leader, content := create("plain", "id"), "content-0"
	for n := 1; create(content, "content") != leader; n++ { // a broker may be slower than another
		content = fmt.Sprint("content-", n)
	}
	ways := []*costlyPut{
		{name: "PUB", topic: "plain", encode: plainPut},
		{name: "PUB_EXT with a header", topic: "plain", encode: headedPut("//id")},
		{name: "PUB_EXT with an id", topic: "plain", encode: headedPut("##id")},
		{name: "PUB, by content", topic: content, encode: plainPut},
	}
	var brokers []int
	for _, b := range c.Brokers {
		brokers = append(brokers, b.PID)
	}
	var next atomic.Int64
	turn := func(w *costlyPut, lasts time.Duration) {
		var stored atomic.Int64
		var group sync.WaitGroup
		began, before := time.Now(), bench.CPU(brokers)
		for i := range producers {
			group.Go(func() {
				conn, err := net.Dial("tcp", c.Brokers[i%3].TCP)
				if !assert.NoError(t, err) {
					return
				}
				defer conn.Close()
				_, _ = conn.Write([]byte("  V2")) // the next write has the error
				in, frame, b := bufio.NewReader(conn), make([]byte, 10), []byte(nil)
				for time.Since(began) < lasts {
					id := fmt.Sprintf("%016x", next.Add(1))
					b = w.encode(b[:0], w.topic, id, id+strings.Repeat("x", 84))
					if _, err := conn.Write(b); !assert.NoError(t, err) {
						return
					}
					if _, err := io.ReadFull(in, frame); !assert.NoError(t, err) || !assert.Equal(t, "OK", string(frame[8:])) {
						return
					}
					stored.Add(1)
				}
			})
		}
		group.Wait()
		w.puts += stored.Load()
		w.cpu += bench.CPU(brokers) - before
		w.rates = append(w.rates, float64(stored.Load())/time.Since(began).Seconds())
	}
	count := e2etest.Rounds(1, 40)
	for round := range count {
		for i := range ways { // another one begins each time
			turn(ways[(round+i)%len(ways)], time.Duration(e2etest.Rounds(300, 700))*time.Millisecond)
		}
	}
	beside := func(w, other *costlyPut) string { // in the same round
		ratios := make([]float64, count)
		for i, r := range w.rates {
			ratios[i] = r / other.rates[i]
		}
		slices.Sort(ratios)
		return fmt.Sprintf("%.3f (quartiles %.3f to %.3f) of %s", ratios[count/2], ratios[count/4], ratios[count*3/4], other.name)
	}
	for _, w := range ways {
		sorted := slices.Sorted(slices.Values(w.rates))
		require.Positive(t, sorted[0])
		t.Logf("%-22s median %6.0f puts/s, %s, %s; brokers %.1f µs of processor time for each put",
			w.name, sorted[count/2], beside(w, ways[0]), beside(w, ways[1]), float64(w.cpu.Microseconds())/float64(w.puts))
	}
}
