package maintenance

import (
	"math"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// repeatMarks is how often within RepeatFor the committed end is noted down.
const repeatMarks = 8

// replayFrom is the begin of the log that the topic keeps although all channels have
// passed it: batches younger than its retention time, but no more than its retention
// bytes.
func replayFrom(p *engine.Partition, t metadata.TopicState) ident.Offset {
	o, end := t.Options, p.Committed().Offset
	from := end
	if o.RetentionMS > 0 {
		if r, ok := p.Store().Index().AtTime(time.Now().UnixMilli() - o.RetentionMS); ok {
			from = min(from, r.Offset)
		}
	}
	if o.RetentionBytes <= 0 {
		return from
	}
	most := max(end-ident.Offset(o.RetentionBytes/int64(t.Partitions)), 0)
	if o.RetentionMS <= 0 {
		return most
	}
	return max(from, most)
}

// identifiedFrom is the begin of the log whose messages have identities in the dedupe window. A
// replica that starts, or is new, derives the window from the log (DW-5).
func identifiedFrom(p *engine.Partition) ident.Offset {
	p.ExpireIdentities()
	if v := p.View(); v.KeepsIdentified {
		return v.IdentifiedFrom
	}
	return math.MaxInt64
}

// committedAt is how far a log was committed, and when by this process's own clock.
type committedAt struct {
	at  time.Time
	end ident.Offset
}

// repeatable is the begin of the log of which edges may repeat puts: how far it was
// committed here so long ago. A leader after a restart recognises repeats by the log
// (ADR 2). The times in the log are the leader's, which need not be this broker's.
func (m *logMemory) repeatable(p *engine.Partition, now time.Time, last time.Duration) ident.Offset {
	if n := len(m.committed); n == 0 || now.Sub(m.committed[n-1].at) >= last/repeatMarks {
		m.committed = append(m.committed, committedAt{now, p.Committed().Offset})
	}
	for len(m.committed) > 1 && now.Sub(m.committed[1].at) >= last {
		m.committed = m.committed[1:]
	}
	if now.Sub(m.committed[0].at) < last {
		return 0
	}
	return m.committed[0].end
}
