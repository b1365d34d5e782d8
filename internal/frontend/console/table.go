package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

// MaxPage bounds the rows of one answer.
const MaxPage = 500

// Page selects and orders rows.
type Page struct {
	Search string // part of the name, in any case
	Sort   string // name, depth, lag, rate, or disk (topics)
	Desc   bool
	Offset int
	Limit  int
}

// Sorts lists the values of Page.Sort.
func Sorts() []string { return []string{"name", "depth", "lag", "rate", "disk"} }

type part struct {
	Live    Live               `json:"live"`
	Topics  []api.TopicSample  `json:"topics"`
	Damaged []api.PlacedDamage `json:"damaged,omitempty"`
}

type table struct {
	view     api.ClusterView
	missing  []Unreachable
	damaged  []api.PlacedDamage // damage of the other brokers, already in view
	live     map[ident.Node]*Live
	topics   []Topic   // by name
	channels []Channel // by topic and name
	// changes are the last events, requested at most once.
	changes func() []Event
}

// ownPart is this broker's part. The caller must not change it.
func (c *Console) ownPart() part {
	c.given.Lock()
	defer c.given.Unlock()
	c.givePartLocked()
	return c.given.value.part
}

// ownJSON is this broker's part as JSON, for the other consoles.
func (c *Console) ownJSON() ([]byte, error) {
	o := &c.given
	o.Lock()
	defer o.Unlock()
	c.givePartLocked()
	if o.value.raw == nil {
		began := time.Now()
		raw, err := json.Marshal(o.value.part)
		if err != nil {
			return nil, err
		}
		o.value.raw = raw
		o.serves = min(o.serves+timesCost*time.Since(began), tableFor)
	}
	return o.value.raw, nil
}

// givePartLocked rebuilds the part, unless the last one is still valid.
func (c *Console) givePartLocked() {
	if began := time.Now(); !c.given.freshLocked(began) {
		c.given.setLocked(givenPart{part: c.ownTable()}, began, 0, tableFor)
	}
}

// ownTable is this broker's current part, with the rates of the last step.
func (c *Console) ownTable() part {
	p := part{Live: c.live(), Damaged: c.o.Cluster.Damage(), Topics: c.o.Cluster.Samples("", "")}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range p.Topics {
		t := &p.Topics[i]
		r := c.kept.rates[t.Topic]
		t.PutRate, t.BytesRate = r.puts, r.putBytes
		for j := range t.Channels {
			t.Channels[j].FinishRate = c.kept.rates[t.Topic+"/"+t.Channels[j].Channel].finishes
		}
	}
	return p
}

func channelRow(topic string, ch *api.ChannelSample) Channel {
	return Channel{
		Topic: topic, Channel: ch.Channel, Depth: ch.Depth, InFlight: ch.InFlight, Deferred: ch.Deferred, LagSeconds: seconds(ch.Lag),
		Clients: ch.Clients, Paused: ch.Paused, Ordered: ch.Ordered, Finishes: ch.FinishRate, Requeues: ch.Requeued, Timeouts: ch.TimedOut,
	}
}

// seconds rounds to milliseconds: an answer has thousands of them.
func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// table requests the parts of all brokers, or returns the last table while that is still valid. The caller must not
// change it.
func (c *Console) table(ctx context.Context) *table {
	c.shared.Lock()
	defer c.shared.Unlock()
	began := time.Now()
	if c.shared.freshLocked(began) {
		return c.shared.value
	}
	// The request that triggers the query may end before the answer, which the requests that wait for the lock share.
	ctx = context.WithoutCancel(ctx)
	v := c.o.Cluster.View()
	parts, missing := askAll[part](ctx, c, v, question{What: askTable}, "")
	t := &table{view: v, missing: missing, live: map[ident.Node]*Live{}}
	t.changes = sync.OnceValue(func() []Event {
		hour := time.Now().Add(-time.Hour)
		return first(c.Events(ctx, EventsOf{SinceMS: hour.UnixMilli(), Limit: maxChanges}).Events, maxChanges)
	})
	t.join(v, parts)
	c.shared.setLocked(t, began, tableFor, tableForMost)
	return t
}

// join merges the parts. The table also has topics without a leader.
func (t *table) join(v api.ClusterView, parts []answerOf[part]) {
	for i := range parts {
		t.live[parts[i].broker] = &parts[i].answer.Live
		if parts[i].broker != v.Self { // the view already has this broker's damage
			t.damaged = append(t.damaged, parts[i].answer.Damaged...)
		}
	}
	addDamage(&t.view, t.damaged)
	at := t.listTopics(t.view)
	t.addParts(at, parts)
	slices.SortFunc(t.topics, func(a, b Topic) int { return strings.Compare(a.Topic, b.Topic) })
	slices.SortFunc(t.channels, func(a, b Channel) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), strings.Compare(a.Channel, b.Channel))
	})
}

// listTopics makes a row for each topic of the view, and returns the index of each.
func (t *table) listTopics(v api.ClusterView) (at map[string]int) {
	at = make(map[string]int, len(v.Topics))
	t.topics = make([]Topic, 0, len(v.Topics))
	alive := health.Living(v)
	for i := range v.Topics {
		x := &v.Topics[i]
		row := Topic{Topic: x.Topic, Partitions: len(x.Partitions), ReplicationFactor: x.ReplicationFactor}
		for _, p := range x.Partitions {
			if p.UnderReplicated {
				row.UnderReplicated++
			}
			if !alive[p.Leader] {
				row.Leaderless++
			}
		}
		row.Fault, row.Faulty = health.WorstFault(x.Partitions, alive)
		at[x.Topic] = len(t.topics)
		t.topics = append(t.topics, row)
	}
	return at
}

// addParts adds the brokers' parts to the rows of the topics, and makes the rows of the channels.
func (t *table) addParts(at map[string]int, parts []answerOf[part]) {
	type name struct{ topic, channel string }
	channels := map[name]int{}
	for i := range parts {
		for j := range parts[i].answer.Topics {
			x := &parts[i].answer.Topics[j]
			k, there := at[x.Topic]
			if !there {
				continue // it is being deleted
			}
			t.topics[k].add(x)
			for n := range x.Channels {
				row, name := channelRow(x.Topic, &x.Channels[n]), name{x.Topic, x.Channels[n].Channel}
				if n, ok := channels[name]; ok {
					t.channels[n].add(&row)
					continue
				}
				channels[name] = len(t.channels)
				t.channels = append(t.channels, row)
				t.topics[k].Channels++
			}
		}
	}
}

// addDamage adds damaged ranges of other brokers to a view, whose topics are shared.
func addDamage(v *api.ClusterView, places []api.PlacedDamage) {
	if len(places) == 0 {
		return
	}
	v.Topics = slices.Clone(v.Topics)
	copied := map[int]bool{}
	at := make(map[string]int, len(v.Topics))
	for i := range v.Topics {
		at[v.Topics[i].Topic] = i
	}
	for _, d := range places {
		i, there := at[d.Topic]
		if !there {
			continue // it is being deleted, or not in the view
		}
		if !copied[i] {
			v.Topics[i].Partitions, copied[i] = slices.Clone(v.Topics[i].Partitions), true
		}
		for j := range v.Topics[i].Partitions {
			if p := &v.Topics[i].Partitions[j]; p.Partition == d.Partition {
				p.Damaged = append(slices.Clip(p.Damaged), d.Damage)
			}
		}
	}
}

// add adds the part of a topic that one broker leads.
func (t *Topic) add(o *api.TopicSample) {
	depth, lag := o.Depth, time.Duration(0)
	for i := range o.Channels {
		depth, lag = max(depth, o.Channels[i].Depth), max(lag, o.Channels[i].Lag)
	}
	t.Messages += o.Messages
	t.Depth += depth
	t.LagSeconds = max(t.LagSeconds, seconds(lag))
	t.Paused = t.Paused || o.Paused
	kept := float64(o.KeptBytes)
	t.Puts, t.PutBytes, t.KeptBytes = plus(t.Puts, o.PutRate), plus(t.PutBytes, o.BytesRate), plus(t.KeptBytes, &kept)
}

func (c *Channel) add(o *Channel) {
	c.Depth += o.Depth
	c.InFlight += o.InFlight
	c.Deferred += o.Deferred
	c.Requeues += o.Requeues
	c.Timeouts += o.Timeouts
	c.LagSeconds = max(c.LagSeconds, o.LagSeconds)
	c.Clients = max(c.Clients, o.Clients) // a consumer is attached to every partition
	c.Paused = c.Paused || o.Paused
	c.Ordered = c.Ordered || o.Ordered
	c.Finishes = plus(c.Finishes, o.Finishes)
}

func (t *Traffic) add(o *Traffic) {
	t.Puts, t.PutBytes, t.Deliveries = plus(t.Puts, o.Puts), plus(t.PutBytes, o.PutBytes), plus(t.Deliveries, o.Deliveries)
	t.Finishes, t.Refusals = plus(t.Finishes, o.Finishes), plus(t.Refusals, o.Refusals)
}

// plus adds two values. An unknown value counts as 0; the sum of two unknown values is unknown.
func plus(a, b *float64) *float64 {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	sum := *a + *b
	return &sum
}

// Topics is one page of the topics.
func (c *Console) Topics(ctx context.Context, p Page) Topics {
	t := c.table(ctx)
	list := matching(t.topics, p.Search, func(x *Topic) string { return x.Topic })
	order(list, p.Desc, map[string]func(*Topic) float64{
		"depth": func(x *Topic) float64 { return float64(x.Depth) }, "lag": func(x *Topic) float64 { return x.LagSeconds },
		"rate": func(x *Topic) float64 { return orNegative(x.Puts) }, "disk": func(x *Topic) float64 { return orNegative(x.KeptBytes) },
	}[p.Sort])
	return Topics{Listed{len(t.topics), len(list), p.Offset, t.missing}, cut(list, p)}
}

// Channels is one page of the channels, of one topic if it is named.
func (c *Console) Channels(ctx context.Context, topic string, p Page) Channels {
	t := c.table(ctx)
	all := t.channels
	if topic != "" {
		all = t.of(topic)
	}
	list := matching(all, p.Search, func(x *Channel) string { return x.Topic + "/" + x.Channel })
	order(list, p.Desc, map[string]func(*Channel) float64{
		"depth": func(x *Channel) float64 { return float64(x.Depth) }, "lag": func(x *Channel) float64 { return x.LagSeconds },
		"rate": func(x *Channel) float64 { return orNegative(x.Finishes) }, "disk": func(*Channel) float64 { return 0 },
	}[p.Sort])
	return Channels{Listed{len(all), len(list), p.Offset, t.missing}, cut(list, p)}
}

// of returns the channels of a topic.
func (t *table) of(topic string) []Channel {
	from, _ := slices.BinarySearchFunc(t.channels, topic, func(x Channel, name string) int { return strings.Compare(x.Topic, name) })
	to := from
	for to < len(t.channels) && t.channels[to].Topic == topic {
		to++
	}
	return t.channels[from:to]
}

// matching copies the rows whose name contains the text.
func matching[Row any](rows []Row, text string, name func(*Row) string) []*Row {
	text = strings.ToLower(text)
	out := make([]*Row, 0, len(rows))
	for i := range rows {
		if text == "" || strings.Contains(strings.ToLower(name(&rows[i])), text) {
			out = append(out, &rows[i])
		}
	}
	return out
}

// order sorts rows, which are sorted by name, by a value if one is given; rows with equal values stay in that order.
func order[Row any](rows []*Row, desc bool, value func(*Row) float64) {
	type ranked struct {
		value float64
		row   *Row
		at    int
	}
	if value == nil {
		if desc {
			slices.Reverse(rows)
		}
		return
	}
	all := make([]ranked, len(rows))
	for i, r := range rows {
		all[i] = ranked{value(r), r, i}
		if desc {
			all[i].value = -all[i].value
		}
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Or(cmp.Compare(a.value, b.value), a.at-b.at) })
	for i := range all {
		rows[i] = all[i].row
	}
}

// orNegative sorts an unknown value below 0.
func orNegative(v *float64) float64 {
	if v == nil {
		return -1
	}
	return *v
}

func cut[Row any](rows []*Row, p Page) []Row {
	from := min(p.Offset, len(rows))
	to := min(from+p.Limit, len(rows))
	out := make([]Row, 0, to-from)
	for _, r := range rows[from:to] {
		out = append(out, *r)
	}
	return out
}

// own returns the brokers' reports on themselves.
func (t *table) own() map[ident.Node]health.Own {
	out := make(map[ident.Node]health.Own, len(t.live))
	for n, live := range t.live {
		out[n] = live.Own
	}
	return out
}

func (t *table) brokers(self ident.Node) []Broker {
	leads, replicas := map[ident.Node]int{}, map[ident.Node]int{}
	for i := range t.view.Topics {
		for _, p := range t.view.Topics[i].Partitions {
			leads[p.Leader]++
			for _, n := range p.Replicas {
				replicas[n]++
			}
		}
	}
	out := make([]Broker, 0, len(t.view.Brokers))
	for _, b := range t.view.Brokers {
		live := t.live[b.Name]
		if live != nil && live.Own.Hangs() {
			b.Hangs = true // other brokers do not report the hang while they cannot take over from this one
		}
		out = append(out, Broker{
			BrokerView: b, Self: b.Name == self, Controller: b.Name == t.view.Controller, Unreachable: health.Unreachable(&b),
			BehindSeconds: t.behind(b.Name), Leads: leads[b.Name], Replicas: replicas[b.Name], Answered: live != nil, Live: live,
		})
	}
	return out
}

// behind is the longest time that leaders waited for the replicas on a broker.
func (t *table) behind(n ident.Node) (longest *float64) {
	for _, live := range t.live {
		if d, ok := live.Owes[n]; ok && (longest == nil || d > *longest) {
			longest = &d
		}
	}
	return longest
}

// Brokers lists the brokers.
func (c *Console) Brokers(ctx context.Context) Brokers {
	t := c.table(ctx)
	return Brokers{Unreachable: t.missing, Brokers: t.brokers(c.self)}
}

func placeOf(topic string, partition int) string { return fmt.Sprintf("%s/%d", topic, partition) }
