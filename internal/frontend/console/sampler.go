package console

import (
	"cmp"
	"context"
	"maps"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/health"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// The series of a broker, of a topic and of a channel, in the order of their rings.
var (
	brokerSeries  = []string{"puts", "put_bytes", "deliveries", "finishes", "put_p99_ms", "sync_p99_ms", "depth", "lag_seconds", "connections", "disk_free_bytes", "disk_data_bytes", "refusals"}
	topicSeries   = []string{"puts", "put_bytes", "depth", "lag_seconds", "kept_bytes"}
	channelSeries = []string{"depth", "in_flight", "deferred", "lag_seconds", "finishes"}
)

// largest are the series for which the largest value of all brokers is used; all others are summed.
var largest = map[string]bool{"put_p99_ms": true, "sync_p99_ms": true, "lag_seconds": true}

// rates are the rates of the last step; nil = unknown.
type rates struct{ puts, putBytes, finishes *float64 }

type sampled struct {
	slot     int64
	at       time.Time
	topics   map[string]*api.TopicSample
	totals   metrics.Totals
	rises    rises
	rates    map[string]rates             // by topic, and by topic/channel
	live     Live                         // the rates and latencies of the last step
	owed     map[ident.Node]time.Duration // the longest since the last sample
	rings    map[trackKind]*tracks
	firstRun int64 // slot of the first sample
}

func newSampled() sampled {
	return sampled{
		rings: map[trackKind]*tracks{
			ofBroker:  newTracks(1, len(brokerSeries)),
			ofTopic:   newTracks(maxTopics, len(topicSeries)),
			ofChannel: newTracks(maxChannels, len(channelSeries)),
		},
		rates: map[string]rates{}, rises: rises{},
	}
}

// Keep samples this broker until ctx ends, and then saves the samples. If a check of the alarms takes long, the next one is
// delayed, so that in a large cluster the checks take at most a fiftieth of a processor.
func (c *Console) Keep(ctx context.Context) {
	step := time.NewTicker(c.o.Step)
	defer step.Stop()
	check := time.NewTimer(0)
	defer check.Stop()
	save := time.NewTicker(saveEvery)
	defer save.Stop()
	c.sample(time.Now())
	for {
		select {
		case <-ctx.Done():
			c.saveAtEnd()
			return
		case <-save.C:
			c.startSave()
		case now := <-step.C:
			c.sample(now)
		case now := <-check.C:
			c.checkAlarms(now)
			c.noteOwed()
			c.shared.forget() // free it, because it has a row for each topic
			c.given.forget()
			check.Reset(max(c.o.Step/5, 50*time.Since(now)))
		}
	}
}

// noteOwed records the longest time that each other broker owed an acknowledgement since the last sample. Several
// checks in a step detect a broker that stalls occasionally, which a single check would rarely see.
func (c *Console) noteOwed() {
	owed := c.o.Cluster.FollowerLag()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept.owed == nil {
		c.kept.owed = map[ident.Node]time.Duration{}
	}
	for n, d := range owed {
		c.kept.owed[n] = max(c.kept.owed[n], d)
	}
}

// owesOf returns the durations in seconds, with those of the previous step.
func owesOf(owed map[ident.Node]time.Duration, before map[ident.Node]float64) map[ident.Node]float64 {
	out := maps.Clone(before)
	if out == nil {
		out = map[ident.Node]float64{}
	}
	for n, d := range owed {
		out[n] = max(out[n], seconds(d))
	}
	return out
}

func (c *Console) sample(now time.Time) {
	topics, totals := c.o.Cluster.Samples("", ""), c.o.Metrics.Totals()
	live := c.liveNow(totals)
	c.noteOwed()
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &c.kept
	slot := now.UnixNano() / int64(c.o.Step)
	k.firstRun = cmp.Or(k.firstRun, slot)
	k.clearUpTo(slot)
	elapsed := 0.0
	if !k.at.IsZero() {
		elapsed = max(now.Sub(k.at).Seconds(), 0)
	}
	sums := k.sampleTopics(slot, topics, elapsed)
	k.rateBroker(&live, totals, elapsed, sums)
	k.rings[ofBroker].get("", slot, true).set(slot, []float32{
		point(live.Puts), point(live.PutBytes), point(live.Deliveries), point(live.Finishes), point(live.PutP99MS), point(live.SyncP99MS),
		float32(sums.depth), float32(sums.lag.Seconds()), float32(live.Connections), point(live.DiskFreeBytes), float32(live.DiskDataBytes), point(live.Refusals),
	})
	live.Owes, k.owed = owesOf(k.owed, nil), nil
	k.slot, k.at, k.totals, k.live = slot, now, totals, live
}

// clearUpTo removes the values of the slots after the last sample: they are an hour old.
func (k *sampled) clearUpTo(slot int64) {
	for s := max(k.slot+1, slot-ringPoints+1); s <= slot; s++ {
		for _, r := range k.rings {
			r.clear(s)
		}
	}
}

// sums are totals over all topics of a sample.
type sums struct {
	depth    int64
	lag      time.Duration
	finishes float64
}

// sampleTopics sets the rates and the rings of the topics. elapsed is 0 for the first sample.
func (k *sampled) sampleTopics(slot int64, topics []api.TopicSample, elapsed float64) (all sums) {
	before := k.topics
	k.topics, k.rates = make(map[string]*api.TopicSample, len(topics)), make(map[string]rates, len(k.rates))
	for i := range topics {
		t := &topics[i]
		k.topics[t.Topic] = t
		old := before[t.Topic]
		if elapsed == 0 || old != nil && old.Leadership != t.Leadership {
			old = nil
		}
		var r rates
		if old != nil {
			r.puts, r.putBytes = rate(t.Put, old.Put, elapsed), rate(t.PutBytes, old.PutBytes, elapsed)
			k.rates[t.Topic] = r
		}
		depth, lag := t.Depth, time.Duration(0)
		for j := range t.Channels {
			ch := &t.Channels[j]
			depth, lag = max(depth, ch.Depth), max(lag, ch.Lag)
			all.depth += ch.Depth
			all.finishes += k.sampleChannel(slot, t.Topic, ch, old, elapsed)
		}
		all.lag = max(all.lag, lag)
		active := depth > 0 || lag > 0 || r.puts != nil && *r.puts > 0
		if x := k.rings[ofTopic].get(t.Topic, slot, active); x != nil {
			x.set(slot, []float32{point(r.puts), point(r.putBytes), float32(depth), float32(lag.Seconds()), float32(t.KeptBytes)})
		}
	}
	return all
}

// sampleChannel returns how many messages a second the channel finished, 0 if that is unknown.
func (k *sampled) sampleChannel(slot int64, topic string, ch *api.ChannelSample, before *api.TopicSample, elapsed float64) float64 {
	name, r := topic+"/"+ch.Channel, rates{}
	if before != nil {
		for i := range before.Channels {
			if old := &before.Channels[i]; old.Channel == ch.Channel {
				r.finishes = rate(ch.Finished, old.Finished, elapsed)
				k.rates[name] = r
				break
			}
		}
	}
	active := ch.Depth+ch.InFlight+ch.Deferred > 0 || r.finishes != nil && *r.finishes > 0
	if x := k.rings[ofChannel].get(name, slot, active); x != nil {
		x.set(slot, []float32{float32(ch.Depth), float32(ch.InFlight), float32(ch.Deferred), float32(ch.Lag.Seconds()), point(r.finishes)})
	}
	if r.finishes == nil {
		return 0
	}
	return *r.finishes
}

// rateBroker fills in the rates and the latencies since the previous sample.
func (k *sampled) rateBroker(live *Live, totals metrics.Totals, elapsed float64, s sums) {
	if elapsed == 0 {
		return
	}
	per := func(now, before float64) *float64 {
		v := max(now-before, 0) / elapsed
		return &v
	}
	live.Puts, live.PutBytes = per(totals.Messages, k.totals.Messages), per(totals.Bytes, k.totals.Bytes)
	live.Deliveries, live.Finishes = per(totals.Delivered, k.totals.Delivered), &s.finishes
	refused := func(t metrics.Totals) (sum float64) {
		for _, n := range t.Refused {
			sum += n
		}
		return sum
	}
	live.Refusals = per(refused(totals), refused(k.totals))
	live.PutP99MS, live.SyncP99MS = p99(totals.Put, k.totals.Put), p99(totals.Sync, k.totals.Sync)
}

// p99 is the quantile of the latencies since the previous sample, in milliseconds; nil without any.
func p99(now, before metrics.Distribution) *float64 {
	v, ok := now.Quantile(before, 0.99)
	if !ok {
		return nil
	}
	v *= 1000
	return &v
}

// rate is nil if the count has fallen, because it then counts something else: the channel was moved back, or deleted
// and created again.
func rate(now, before uint64, elapsed float64) *float64 {
	if now < before {
		return nil
	}
	v := float64(now-before) / elapsed
	return &v
}

func point[T float64 | int64](v *T) float32 {
	if v == nil {
		return noValue
	}
	return float32(*v)
}

func (c *Console) liveNow(totals metrics.Totals) Live {
	l := Live{StartedMS: c.o.Started.UnixMilli(), Refused: totals.Refused}
	disk := c.o.Cluster.Disk()
	if l.DiskDataBytes = disk.DataBytes; disk.FreeKnown {
		l.DiskFreeBytes = &disk.FreeBytes
	}
	if c.o.Connections != nil {
		tcp, http := c.o.Connections()
		l.Connections = tcp + http
	}
	if c.o.Clients != nil {
		l.Consumers, l.Producers, _ = c.o.Clients()
	}
	l.Own, l.Etcd = c.own(totals, time.Now())
	return l
}

// own is this broker's report on its faults, and its role in etcd. It does not access the disk of the messages.
func (c *Console) own(totals metrics.Totals, now time.Time) (own health.Own, etcd string) {
	etcd = "none"
	if c.o.Own != nil {
		own, etcd = c.o.Own()
	}
	f := c.o.Cluster.Faults()
	own.JournalBusySeconds, own.LoopBusySeconds = seconds(f.JournalBusy), seconds(f.LoopBusy)
	own.IdleChannels, own.IdleChannelCount = f.IdleChannels[:min(len(f.IdleChannels), health.MaxListed)], len(f.IdleChannels)
	own.HeldPolicies, own.HeldPolicyCount = f.HeldPolicies[:min(len(f.HeldPolicies), health.MaxListed)], len(f.HeldPolicies)
	c.mu.Lock()
	defer c.mu.Unlock()
	for limit, n := range totals.Limited {
		if ago, ok := c.kept.rises.since("limit "+limit, n, now); ok {
			if own.RefusedSecondsAgo == nil {
				own.RefusedSecondsAgo = map[string]float64{}
			}
			own.RefusedSecondsAgo[limit] = ago.Seconds()
		}
	}
	if ago, ok := c.kept.rises.since("corrupt", float64(f.Corrupt), now); ok {
		s := ago.Seconds()
		own.CorruptSecondsAgo = &s
	}
	return own, etcd
}

// rises has the last check at which each counter had grown.
type rises map[string]rise

type rise struct {
	count float64
	at    time.Time
}

// since records a counter, and returns how long it has not grown; false if it is 0.
func (r rises) since(counter string, count float64, now time.Time) (time.Duration, bool) {
	last := r[counter]
	if count > last.count {
		last = rise{count, now}
		r[counter] = last
	}
	return now.Sub(last.at), last.count > 0
}

// live is the state of this broker with the rates of the last step.
func (c *Console) live() Live {
	l := c.liveNow(c.o.Metrics.Totals())
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &c.kept.live
	l.Traffic, l.PutP99MS, l.SyncP99MS, l.Owes = k.Traffic, k.PutP99MS, k.SyncP99MS, owesOf(c.kept.owed, k.Owes)
	return l
}
