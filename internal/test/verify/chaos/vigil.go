package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

const (
	// timesTable is the longest that the times of coordinator/replica/DESIGN.md allow: a session
	// runs out, or a disk counts as stalled; a new leader is elected, and members that are late
	// leave. Session TTL 3 s, T_lag 0.5 s, 2 × T_isr, 8 × election 50 ms.
	timesTable = 3*time.Second + 500*time.Millisecond + 2*time.Second + 8*50*time.Millisecond
	// servesWithin is the promise: the table and one second.
	servesWithin = timesTable + time.Second
	// etcdElects is what an embedded etcd that has lost its leader may take first: its election
	// timeout is 300 ms, drawn up to twice that, and two elections may be needed.
	etcdElects = 1200 * time.Millisecond
	// silentClients is after how long a broker's silence its clients' messages are given to
	// others (docs/operations/failures.md).
	silentClients = 12 * time.Second
	vigilEvery    = 100 * time.Millisecond
	// viewAge is how old a broker's view of the metadata may be.
	viewAge = time.Second
)

// vigil checks, while faults continue, what the cluster must still do:
//
//   - If a minimum of in-sync members of each partition is well, and these reach each other and
//     the metadata, each partition commits puts, and puts at these brokers are answered OK,
//     within servesWithin.
//   - A partition delivers what is committed as long as the metadata names a leader that has
//     served and is well.
//
// The time in which the machine did not run this test itself does not count.
type vigil struct {
	*cluster
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	able      map[int]time.Time      // set of brokers (bits) → since when it must serve
	failing   map[string]time.Time   // broker → since when puts are tried there without an OK
	failed    map[string]time.Time   // broker → when the last put there failed
	open      map[*attempt]bool      // puts that have no answer yet
	commits   map[int]*commitWatch   // partition
	delivered map[string]*deliveries // channel
	leaders   map[int]*leaderWatch   // partition
	faults    []string
	slowest   time.Duration    // the longest time without service, in which service was due
	paused    time.Duration    // the machine did not run
	judged    [2]time.Duration // how long puts were due, and deliveries
	looked    time.Time
	ended     bool
}

// attempt is one put at one broker.
type attempt struct {
	broker string
	began  time.Time
}

// commitWatch is one partition's committed end.
type commitWatch struct {
	end   ident.Sequence
	moved time.Time
}

// leaderWatch is since when a partition has its leader, and the leader serves.
type leaderWatch struct {
	name   ident.Node
	served time.Time // its first commit as leader; zero: none yet
	well   time.Time // since when it is well and reaches the metadata
}

// deliveries are those of one channel: the sequences that came, by partition.
type deliveries struct {
	seen  map[int]map[ident.Sequence]bool
	marks map[int]mark
}

// mark is a committed end that is to be delivered.
type mark struct {
	end ident.Sequence
	at  time.Time
	n   int       // messages delivered so far
	got time.Time // when there was the last new one
}

// keepVigil begins the checks of one round. The round has the channels named.
func (c *cluster) keepVigil(channels ...string) *vigil {
	ctx, cancel := context.WithCancel(context.Background())
	v := newVigil(c, channels...)
	v.cancel = cancel
	v.wg.Go(func() { // ends at stop
		for ctx.Err() == nil {
			v.look(time.Now())
			select {
			case <-ctx.Done():
			case <-time.After(vigilEvery):
			}
		}
	})
	c.t.Cleanup(func() { v.stop() })
	return v
}

func newVigil(c *cluster, channels ...string) *vigil {
	v := &vigil{
		cluster: c, able: map[int]time.Time{}, failing: map[string]time.Time{}, failed: map[string]time.Time{}, open: map[*attempt]bool{},
		commits: map[int]*commitWatch{}, delivered: map[string]*deliveries{}, leaders: map[int]*leaderWatch{}, looked: time.Now(),
	}
	for _, name := range channels {
		v.delivered[name] = &deliveries{map[int]map[ident.Sequence]bool{}, map[int]mark{}}
	}
	return v
}

// stop ends the checks and returns the broken promises.
func (v *vigil) stop() []string {
	v.cancel()
	v.wg.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = true
	return v.faults
}

// tries notes that a put begins at a broker.
func (v *vigil) tries(b *broker) *attempt {
	v.mu.Lock()
	defer v.mu.Unlock()
	a := &attempt{b.name, time.Now()}
	v.open[a] = true
	if v.failing[b.name].IsZero() {
		v.failing[b.name] = a.began
	}
	return a
}

// answered notes the answer of a put.
func (v *vigil) answered(a *attempt, with judge.Answer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.open, a)
	if with == judge.OK {
		v.failing[a.broker] = time.Time{}
	} else {
		v.failed[a.broker] = time.Now()
	}
}

// refusedUntil is the last time at which a put at the broker shows that there is no service: one that fails, or one
// that has been waiting for a second. Clients that wait at other brokers show nothing of this one.
func (v *vigil) refusedUntil(broker string, now time.Time) time.Time {
	for a := range v.open {
		if a.broker == broker && now.Sub(a.began) > time.Second {
			return now
		}
	}
	return v.failed[broker]
}

// took notes a delivery.
func (v *vigil) took(channel, id string) {
	place, ok := judge.ParseID(id)
	if !ok {
		return // the judge of the history finds it
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	d := v.delivered[channel]
	if d.seen[place.Partition] == nil {
		d.seen[place.Partition] = map[ident.Sequence]bool{}
	}
	d.seen[place.Partition][ident.Sequence(place.Sequence)] = true
}

// look is one round of the checks.
func (v *vigil) look(now time.Time) {
	views := v.watch.views(now.Add(-viewAge))
	v.mu.Lock()
	defer v.mu.Unlock()
	passed := now.Sub(v.looked)
	if late := passed - 2*vigilEvery; late > 0 {
		v.paused += late
		v.forgive(late)
	}
	v.looked = now
	v.followCommits(now, views)
	v.followLeaders(now, views)
	v.puts(now, views)
	v.deliveriesGoOn(now)
	if len(v.able) > 0 {
		v.judged[0] += passed
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(v.leaders)), func(l *leaderWatch) bool { return !l.served.IsZero() }) {
		v.judged[1] += passed
	}
}

// forgive moves all times on by what the machine did not run.
func (v *vigil) forgive(late time.Duration) {
	for set, since := range v.able {
		v.able[set] = since.Add(late)
	}
	for _, w := range v.commits {
		w.moved = w.moved.Add(late)
	}
	for name, since := range v.failing {
		if !since.IsZero() {
			v.failing[name] = since.Add(late)
		}
	}
	for a := range v.open {
		a.began = a.began.Add(late)
	}
	for _, d := range v.delivered {
		for p, m := range d.marks {
			m.at, m.got = m.at.Add(late), m.got.Add(late)
			d.marks[p] = m
		}
	}
}

// followCommits takes the committed ends in.
func (v *vigil) followCommits(now time.Time, views map[string]api.ClusterView) {
	for _, view := range views {
		for _, p := range partitionsOf(view) {
			w := v.commits[p.Partition]
			if w == nil {
				w = &commitWatch{moved: now}
				v.commits[p.Partition] = w
			}
			if p.CommittedSequence > w.end || len(p.Target) > 0 { // an operator's change takes its time
				w.end, w.moved = max(w.end, p.CommittedSequence), now
			}
		}
	}
}

// partitionsOf are those of the round's topic.
func partitionsOf(view api.ClusterView) []api.PartitionView {
	for _, t := range view.Topics {
		if t.Topic == topic {
			return t.Partitions
		}
	}
	return nil
}

// puts checks that sets of brokers that must serve do.
func (v *vigil) puts(now time.Time, views map[string]api.ClusterView) {
	limit := servesWithin
	if v.etcd == nil {
		limit += etcdElects
	}
	for set := 1; set < 1<<len(v.brokers); set++ {
		since, ok := v.mustServe(set, views)
		if !ok {
			delete(v.able, set)
			continue
		}
		if from, known := v.able[set]; known && from.After(since) {
			since = from
		} else if !known {
			since = now
		}
		v.able[set] = since
		v.serves(now, set, since, limit)
	}
}

// mustServe reports whether a set of brokers is well, reaches the metadata, and has a minimum
// of each partition's in-sync members.
func (v *vigil) mustServe(set int, views map[string]api.ClusterView) (since time.Time, ok bool) {
	n := 0
	for i, b := range v.brokers {
		if set>>i&1 == 0 {
			continue
		}
		n++
		at, well := v.health.well(b.name)
		if _, answers := views[b.name]; !well || !answers {
			return since, false
		}
		since = later(since, at)
		for j, o := range v.brokers[:i] {
			if set>>j&1 == 0 {
				continue
			}
			at, open := v.health.open(b.number(), o.number())
			if !open {
				return since, false
			}
			since = later(since, at)
		}
		if v.etcd != nil {
			at, well := v.health.well(v.etcd.name)
			way, open := v.health.open(b.number(), v.etcd.number())
			if !well || !open {
				return since, false
			}
			since = later(since, later(at, way))
		}
	}
	if v.etcd == nil && n <= len(v.brokers)/2 {
		return since, false
	}
	if v.halfCut(set) && slices.ContainsFunc(v.brokers, func(b *broker) bool {
		return set>>(b.number()-1)&1 == 1 && views[b.name].MetadataUnheardMS > viewAge.Milliseconds()
	}) {
		return since, false
	}
	return since, v.minimum(set, views)
}

// halfCut reports whether a broker outside of a set reaches some of it, and not all. If it leads a
// partition or etcd, those that it does not reach may have to wait (docs/robustness.md, Known
// limits).
func (v *vigil) halfCut(set int) bool {
	for i, o := range v.brokers {
		if set>>i&1 == 1 {
			continue
		}
		reached, cut := false, false
		for j, b := range v.brokers {
			if set>>j&1 == 1 {
				_, open := v.health.open(o.number(), b.number())
				reached, cut = reached || open, cut || !open
			}
		}
		if reached && cut {
			return true
		}
	}
	return false
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// minimum reports whether each view in the set says that the set has a minimum of each partition's
// in-sync members, none of which is short of disk space.
func (v *vigil) minimum(set int, views map[string]api.ClusterView) bool {
	for i, b := range v.brokers {
		if set>>i&1 == 0 {
			continue
		}
		partitions := partitionsOf(views[b.name])
		if len(partitions) == 0 || slices.ContainsFunc(views[b.name].Brokers, func(x api.BrokerView) bool { return x.LowSpace }) {
			return false
		}
		for _, p := range partitions {
			members := 0
			for j, m := range v.brokers {
				if set>>j&1 == 1 && slices.Contains(p.ISR, ident.Node(m.name)) {
					members++
				}
			}
			if members < p.MinInSync || len(p.Target) > 0 {
				return false
			}
		}
	}
	return true
}

// serves checks one set that has had to serve for some time.
func (v *vigil) serves(now time.Time, set int, since time.Time, limit time.Duration) {
	var refused time.Time // at any of them
	for i, b := range v.brokers {
		if set>>i&1 == 1 {
			refused = later(refused, v.refusedUntil(b.name, now))
		}
	}
	for p, w := range v.commits {
		if v.late(refused.Sub(later(since, w.moved)), limit, set, func() string {
			return fmt.Sprintf("partition %d commits nothing since %s (sequence %d)", p, w.moved.Format(stamp), w.end)
		}) {
			return
		}
	}
	if v.halfCut(set) {
		return
	}
	for i, b := range v.brokers {
		if from := v.failing[b.name]; set>>i&1 == 1 && !from.IsZero() {
			if v.late(v.refusedUntil(b.name, now).Sub(later(since, from)), limit, set, func() string {
				return fmt.Sprintf("no put at %s is answered OK since %s", b.name, from.Format(stamp))
			}) {
				return
			}
		}
	}
}

const stamp = "15:04:05.000"

// late notes for how long service that was due did not come. Beyond the limit it notes a fault and
// returns true.
func (v *vigil) late(by, limit time.Duration, set int, what func() string) bool {
	v.slowest = max(v.slowest, by)
	if by <= limit || v.ended {
		return false
	}
	var names []string
	for i, b := range v.brokers {
		if set>>i&1 == 1 {
			names = append(names, b.name)
		}
	}
	v.fault(fmt.Sprintf("%v are well, reach each other and the metadata, and are enough, since %s: %s",
		names, v.able[set].Format(stamp), what()))
	for s := range v.able { // one fault for each cause
		v.able[s] = time.Now()
	}
	return true
}

// fault notes a broken promise.
func (v *vigil) fault(text string) {
	v.faults = append(v.faults, time.Now().Format(stamp)+" "+text)
}

// followLeaders takes in which broker leads which partition, by the word of that broker itself.
func (v *vigil) followLeaders(now time.Time, views map[string]api.ClusterView) {
	for p, w := range v.commits {
		l := v.leaders[p]
		if l == nil {
			l = &leaderWatch{}
			v.leaders[p] = l
		}
		name, well := v.named(p, views)
		switch {
		case name != l.name || name == "":
			*l = leaderWatch{name: name, well: now}
		case !well:
			l.well = now
		case l.served.IsZero() && w.moved.Equal(now):
			l.served = now
		}
	}
}

// named is the leader of a partition that is named in its own view of the metadata. well: it is
// well, and its word on the metadata is fresh.
func (v *vigil) named(p int, views map[string]api.ClusterView) (name ident.Node, well bool) {
	for _, b := range v.brokers {
		view, fresh := views[b.name]
		if !fresh {
			continue
		}
		for _, x := range partitionsOf(view) {
			if x.Partition == p && x.Leader == ident.Node(b.name) {
				_, well := v.health.well(b.name)
				return x.Leader, well && view.MetadataUnheardMS < viewAge.Milliseconds()
			}
		}
	}
	return "", false
}

// deliveriesGoOn checks that each partition with a leader delivers what is committed.
func (v *vigil) deliveriesGoOn(now time.Time) {
	for channel, d := range v.delivered {
		for p, w := range v.commits {
			m, l, n := d.marks[p], v.leaders[p], len(d.seen[p])
			if n > m.n {
				m.n, m.got = n, now
			}
			if ident.Sequence(n) >= m.end {
				m.end, m.at = w.end, now
			}
			d.marks[p] = m
			if ident.Sequence(n) >= m.end || l.served.IsZero() || v.ended {
				continue
			}
			from := later(m.at, later(l.well, l.served))
			// Messages on their way to clients of a broker that is hurt come later. Those that were
			// committed after the mark do not.
			none := w.end > m.end && now.Sub(later(from, m.got)) > servesWithin
			if none || now.Sub(from) > silentClients+servesWithin {
				v.fault(fmt.Sprintf("channel %s, partition %d: %s leads by the metadata and is well since %s; %d of %d messages committed before %s are delivered, the last at %s",
					channel, p, l.name, later(l.well, l.served).Format(stamp), n, m.end, m.at.Format(stamp), m.got.Format(stamp)))
				m.at, m.got = now, now
				d.marks[p] = m
			}
		}
	}
}

// String is what a round says of it.
func (v *vigil) String() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return fmt.Sprintf("puts were due for %s and came after at most %s, deliveries for %s; the machine stood still for %s",
		v.judged[0].Round(time.Second), v.slowest.Round(time.Millisecond), v.judged[1].Round(time.Second), v.paused.Round(time.Millisecond))
}
