package maintenance

import (
	"context"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// retainEvery is the pause between two looks at all logs.
	retainEvery = 500 * time.Millisecond
	// putTimeout bounds one round of relocation, and a new file.
	putTimeout = 5 * time.Second
	// smallLog: a log of fewer bytes is not worth a new file. But its files may end
	// elsewhere on another replica, so one is begun every newFileEvery all the same.
	smallLog     = 64 << 10
	newFileEvery = time.Minute
	// deleteTimeout bounds the deletion of a deserted topic.
	deleteTimeout = 5 * time.Second
)

// Retention trims the logs of all replicas here, each by its own channels' state.
//
// The newest file of a log stays, for the next put goes there. While a disk is short of
// space, the leader of a log of which channels need less than half puts a batch at which all
// replicas begin a new file (queue.NewFile), and the one before it goes when no channel needs it.
type Retention struct {
	*Broker
	space *Space
	// logs is the memory of the looks before; the job's goroutine has it.
	logs map[*engine.Partition]*logMemory
}

// logMemory is the memory of one log.
type logMemory struct {
	newFile   time.Time // when a new file was last begun here for lack of space
	tooMuch   tooMuch
	committed []committedAt // see repeatable
}

// NewRetention makes the state.
func NewRetention(b *Broker, s *Space) *Retention {
	return &Retention{Broker: b, space: s, logs: map[*engine.Partition]*logMemory{}}
}

// Run trims the logs regularly, until ctx ends.
func (r *Retention) Run(ctx context.Context) { every(ctx, retainEvery, nil, r.run) }

// run goes through all partitions but those of topics in the trash. The leader also finishes expired messages, relocates
// those that pin a log, and deletes ephemeral topics that are deserted.
func (r *Retention) run(ctx context.Context) {
	for _, p := range r.Engine.Partitions() {
		q := p.Queue()
		q.ApplyPending()
		if p.Trashed() {
			continue // nothing of a topic in the trash goes
		}
		if p.Leading() {
			q.Reap()
			q.ReleaseEphemeral()
			r.deleteDeserted(ctx, p)
		}
		if err := r.retain(ctx, p); err != nil && ctx.Err() == nil {
			r.Log.WithError(err).WithFields(p.LogFields()).Warn("retention failed, trying again")
		}
	}
	r.forgetRemoved()
	grace := r.TrashGrace
	if r.DeleteEarly && r.space.Here() {
		grace = 0
	}
	if err := r.Store.EmptyTrash(grace); err != nil {
		r.Log.WithError(err).Warn("cannot empty the trash")
	}
}

// forgetRemoved forgets the logs that are no longer hosted.
func (r *Retention) forgetRemoved() {
	for p := range r.logs {
		if now, ok := r.Engine.Partition(p.ID()); !ok || now != p {
			delete(r.logs, p)
		}
	}
}

// retain looks at one log.
func (r *Retention) retain(ctx context.Context, p *engine.Partition) error {
	t, ok := r.Catalog.Topic(p.Topic())
	if !ok || t.ID != p.ID().Topic {
		return nil
	}
	head, ok := p.Store().HeadEnd()
	if !ok && t.Options.MaxBytes <= 0 && !p.Limited() && !r.space.Any() {
		return nil // nothing can go and no put is refused: most partitions, so it must be cheap
	}
	floor := p.OffsetOf(p.Queue().Floor())
	p.Limit(t.PartitionMaxBytes(), floor)
	m := r.memory(p)
	may := min(floor, replayFrom(p, t), m.repeatable(p, time.Now(), r.RepeatFor), identifiedFrom(p), p.Committed().Offset)
	if !ok {
		return r.beginFile(ctx, p, m, may)
	}
	if head > may {
		return nil
	}
	if v := p.View(); v.Role == replica.Leader && v.Writable { // else it would wait, and all other logs with it
		if err := r.relocate(ctx, p, m, head, may); err != nil {
			return err
		}
	}
	messages, relocated := p.Queue().Removable()
	below := min(may, p.OffsetOf(messages), relocated)
	if head > below {
		return nil
	}
	err := p.Store().TrimHead(ident.Position{Offset: below})
	if err == nil && r.space.AnyOf(p.View().Replicas) {
		p.Post(replica.Tick{}) // a replica below its reserve may begin its log afresh, and make room (AC-11)
	}
	return err
}

func (r *Retention) memory(p *engine.Partition) *logMemory {
	m := r.logs[p]
	if m == nil {
		m = &logMemory{}
		r.logs[p] = m
	}
	return m
}

// beginFile has the replicas of a log begin a new file if a disk is short of space, and all of the only one may go. If half of it
// may go, too: while producers publish, the newest messages may always be repeated, so all of it never may.
func (r *Retention) beginFile(ctx context.Context, p *engine.Partition, m *logMemory, may ident.Offset) error {
	v := p.View()
	if v.Role != replica.Leader || !v.Writable || !r.space.AnyOf(v.Replicas) {
		return nil
	}
	start, end := p.Start().Offset, v.End.Offset
	if may < end && may-start < end-may {
		return nil
	}
	now := time.Now()
	if (may < end || p.Store().DiskBytes() < smallLog) && now.Sub(m.newFile) < newFileEvery {
		return nil
	}
	m.newFile = now
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	_, err := r.Engine.PutControl(ctx, p.ID(), queue.NewFile())
	return err
}

// deleteDeserted deletes an #ephemeral topic when its last channel has gone. The leader
// of partition 0 decides for all: consumers are on every partition.
func (r *Retention) deleteDeserted(ctx context.Context, p *engine.Partition) {
	if p.ID().Number != 0 || !nsqd.IsEphemeral(p.Topic()) || !p.Queue().LastChannelGone() {
		return
	}
	t, ok := r.Catalog.Topic(p.Topic())
	if !ok || t.ID != p.ID().Topic {
		return // deleted already
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	if err := r.Admin.DeleteAsRead(ctx, p.Topic(), t); err != nil {
		r.Log.WithError(err).WithFields(p.LogFields()).Warn("a deserted topic was not deleted, trying again")
	}
}
