package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Delays of thirty days survive a kill, whether set by a put or requested by a consumer.
func TestDelaysOfThirtyDays(t *testing.T) {
	t.Parallel()
	const month = 30 * 24 * time.Hour
	flags := []string{"--max-defer-timeout=720h", "--max-req-timeout=720h"}
	b := start(t, flags...)
	c := b.dial()
	c.put("orders", "requeued")
	c.consume("orders", "ch", 2)
	id, _, _ := c.message()
	before := time.Now()
	c.send("REQ %s %d\n", id, month.Milliseconds())
	c.command("put", "DPUB orders %d", month.Milliseconds())
	c.expect("OK")
	after := time.Now()
	deadlines := func() (all []time.Time) {
		_, text := b.get("/v1/channel/deferred?topic=orders&channel=ch")
		var v struct{ Messages []struct{ Deadline int64 } }
		if json.Unmarshal([]byte(text), &v) != nil {
			return nil // the broker does not lead yet
		}
		for _, m := range v.Messages {
			all = append(all, time.Unix(0, m.Deadline))
		}
		return all
	}
	b.eventually("both are deferred", func() bool { return len(deadlines()) == 2 })
	told := deadlines()
	for _, at := range told {
		require.False(t, at.Before(before.Add(month)) || at.After(after.Add(month)), "%v, between %v and %v", at, before, after)
	}
	// A requeue has no answer. The next delta of the channel is written behind it, or has it.
	c.put("orders", "finished")
	id, _, _ = c.message()
	written := b.written()
	c.send("FIN %s\n", id)
	b.eventually("the requeue is on the disk", func() bool { return b.written() > written })
	b.signal(os.Kill)
	b.wait()
	b.run(flags...)
	b.ready()
	b.eventually("both are there again", func() bool { return len(deadlines()) == 2 })
	require.Equal(t, told, deadlines())
}

// written returns how much of the journal's files is in use.
func (b *broker) written() (n int) {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(b.dir, "journal", "*.log"))
	require.NoError(b.t, err)
	for _, name := range files {
		content, err := os.ReadFile(name)
		require.NoError(b.t, err)
		n += len(bytes.TrimRight(content, "\x00"))
	}
	return n
}
