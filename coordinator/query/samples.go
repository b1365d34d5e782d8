package query

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// leadershipSeed makes the hashes of leaderships comparable within this process.
var leadershipSeed = maphash.MakeSeed()

// led identifies one leadership of a partition.
type led struct {
	number uint16
	epoch  uint64
}

// samples are topics that are being added up, by name.
type samples map[string]*sample

type sample struct {
	api.TopicSample
	at map[string]int // places in Channels
}

func (s samples) of(topic string) *sample {
	x := s[topic]
	if x == nil {
		x = &sample{TopicSample: api.TopicSample{Topic: topic}, at: map[string]int{}}
		s[topic] = x
	}
	return x
}

func (s samples) list() []api.TopicSample {
	out := make([]api.TopicSample, 0, len(s))
	for _, x := range s {
		out = append(out, x.TopicSample)
	}
	slices.SortFunc(out, func(a, b api.TopicSample) int { return cmp.Compare(a.Topic, b.Topic) })
	return out
}

func (s *sample) channel(name string) *api.ChannelSample {
	at, ok := s.at[name]
	if !ok {
		at = len(s.Channels)
		s.at[name] = at
		s.Channels = append(s.Channels, api.ChannelSample{Channel: name})
	}
	return &s.Channels[at]
}

// add adds the state of a channel in a partition that is led here.
func add(to *api.ChannelSample, c api.ChannelStats, lag time.Duration) {
	to.Depth += c.Depth
	to.InFlight += int64(c.InFlightCount)
	to.Deferred += int64(c.DeferredCount)
	to.Clients = max(to.Clients, c.ClientCount) // a consumer is attached to every partition
	to.Paused = to.Paused || c.Paused
	to.Ordered = to.Ordered || c.Ordered
	to.Lag = max(to.Lag, lag)
}

// lag is the age of the oldest message that a channel has neither finished nor deferred, by the index of the log,
// without reading a message. A message that was returned (by a requeue, a timeout, or a consumer that left) counts as
// deferred from then on; while it is in flight again, the time since its delivery counts.
func (i *Inspector) lag(p *engine.Partition, c api.ChannelStats, now time.Time) time.Duration {
	if !c.Lags {
		return c.Held
	}
	r, ok := p.Store().Index().AtSequence(c.Oldest)
	if !ok {
		return c.Held
	}
	return max(now.Sub(time.UnixMilli(r.TimeMS)), c.Held) // clocks of brokers differ
}

// Samples returns the topics that have partitions led by this broker, sorted by name; topic and channel, if given, select one.
// Only a sample of a named channel has its partitions. No message is read.
func (i *Inspector) Samples(topic, channel string) []api.TopicSample {
	byName := samples{}
	now := time.Now()
	for _, p := range i.o.Engine.Partitions() {
		if p.Leading() && !p.Trashed() && (topic == "" || p.Topic() == topic) {
			i.sample(byName.of(p.Topic()), p, channel, now)
		}
	}
	for name, s := range byName {
		state, _ := i.o.Catalog.Topic(name)
		s.Paused = state.Paused
	}
	return byName.list()
}

func (i *Inspector) sample(s *sample, p *engine.Partition, channel string, now time.Time) {
	stats, done := p.Queue().Stats(channel, false), p.Queue().Work()
	// The sum does not depend on the order of the partitions.
	s.Leadership += maphash.Comparable(leadershipSeed, led{p.ID().Number, uint64(p.View().Epoch)})
	s.Messages += stats.MessageCount
	s.Put += done.Messages
	s.PutBytes += done.Bytes
	s.Depth += stats.Depth
	s.KeptBytes += int64(p.Committed().Offset - p.Start().Offset)
	for _, c := range stats.Channels {
		i.sampleChannel(s.channel(c.ChannelName), p, c, channel != "", now)
	}
}

func (i *Inspector) sampleChannel(to *api.ChannelSample, p *engine.Partition, c api.ChannelStats, detailed bool, now time.Time) {
	lag := i.lag(p, c, now)
	add(to, c, lag)
	inFlight, deferred := int64(c.InFlightCount), int64(c.DeferredCount)
	if unfinished := uint64(c.Depth + inFlight + deferred); c.MessageCount > unfinished {
		to.Finished += c.MessageCount - unfinished
	}
	to.Requeued += c.RequeueCount
	to.TimedOut += c.TimeoutCount
	if !detailed {
		return
	}
	part := api.ChannelPartition{
		Partition: p.ID().Number, Depth: c.Depth, InFlight: inFlight, Deferred: deferred,
		Lags: c.Lags, Oldest: c.Oldest, LagSeconds: float64(lag.Milliseconds()) / 1000, End: p.View().Committed.Sequence,
	}
	if c.Lags {
		if r, ok := p.Store().Index().AtSequence(c.Oldest); ok {
			part.OldestMS = r.TimeMS
		}
	}
	to.Partitions = append(to.Partitions, part)
}

// Replica is the replica of a partition on this broker.
func (i *Inspector) Replica(topic string, number uint16) (api.ReplicaSample, bool) {
	p, _ := i.replicaOf(topic, number)
	if p == nil {
		return api.ReplicaSample{}, false
	}
	even := caughtUp(p)
	if !even {
		i.o.Engine.Followers([]*engine.Partition{p}, followersWait)
	}
	v := p.View()
	s := api.ReplicaSample{
		Role: v.Role.String(), Epoch: v.Epoch, CommittedOffset: v.Committed.Offset, CommittedSequence: v.Committed.Sequence, End: v.End.Offset, EndSequence: v.End.Sequence,
		DiskBytes: p.Store().DiskBytes(),
	}
	if v.Role != replica.Leader {
		return s, true
	}
	for _, n := range v.Replicas {
		if n == i.o.Self.Name {
			continue
		}
		f := api.FollowerSample{Node: n, InSync: ident.HasMember(v.ISR, n), Known: even}
		for _, seen := range p.Followers() {
			if seen.Node == n && !even {
				f.Behind, f.Owes, f.Known = seen.Behind, time.Duration(seen.OwesMS)*time.Millisecond, true
			}
		}
		s.Followers = append(s.Followers, f)
	}
	return s, true
}
