package console

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// SeriesOf selects the series of the cluster, of a broker, of a topic, or of a channel.
type SeriesOf struct {
	Topic, Channel string
	Broker         ident.Node
	Minutes        int
}

type line struct {
	From   int64             `json:"from"` // slot of the first point
	StepMS int64             `json:"step_ms"`
	Kept   bool              `json:"kept"`
	Series map[string]Points `json:"series"`
}

// UnmarshalJSON reads null as a point without a value.
func (p *Points) UnmarshalJSON(raw []byte) error {
	var values []*float32
	if err := json.Unmarshal(raw, &values); err != nil {
		return err
	}
	*p = make(Points, len(values))
	for i, v := range values {
		if (*p)[i] = noValue; v != nil {
			(*p)[i] = *v
		}
	}
	return nil
}

// ownSeries is this broker's part: the last hour.
func (c *Console) ownSeries(q question) line {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &c.kept
	to := k.slot
	from := max(to-ringPoints+1, k.firstRun)
	l := line{From: from, StepMS: c.o.Step.Milliseconds(), Series: map[string]Points{}}
	kind, name, names := seriesOf(q.Topic, q.Channel)
	t := k.rings[kind].of[name]
	if t == nil || k.at.IsZero() {
		return l
	}
	l.Kept = true
	for i, name := range names {
		l.Series[name] = t.read(i, from, to)
	}
	return l
}

// seriesOf is the track of a channel, a topic, or the broker, with the names of its series.
func seriesOf(topic, channel string) (kind trackKind, name string, names []string) {
	switch {
	case channel != "":
		return ofChannel, topic + "/" + channel, channelSeries
	case topic != "":
		return ofTopic, topic, topicSeries
	}
	return ofBroker, "", brokerSeries
}

// Series merges the parts of all brokers. outcome.ErrBrokerNotFound.
func (c *Console) Series(ctx context.Context, of SeriesOf) (Series, error) {
	v := c.o.Cluster.Members()
	if of.Broker != "" && !has(v, of.Broker) {
		return Series{}, outcome.ErrBrokerNotFound
	}
	parts, missing := askAll[line](ctx, c, v, question{What: askSeries, EventsOf: EventsOf{Topic: of.Topic}, Channel: of.Channel}, of.Broker)
	step := c.o.Step.Milliseconds()
	to := time.Now().UnixMilli()/step - 1 // the current slot may have no sample yet
	c.mu.Lock()
	to = max(to, c.kept.slot)
	c.mu.Unlock()
	points := int64(of.Minutes) * time.Minute.Milliseconds() / step
	from := to - min(points, ringPoints) + 1
	s := Series{StepSeconds: int(step / 1000), FromMS: from * step, ToMS: to * step, Unreachable: missing, Series: map[string]Points{}}
	_, _, names := seriesOf(of.Topic, of.Channel)
	for _, name := range names {
		s.Series[name] = slices.Repeat(Points{noValue}, int(to-from+1))
	}
	for i := range parts {
		l := &parts[i].answer
		if l.StepMS != step || !l.Kept {
			continue
		}
		s.Kept = true
		for name, joined := range s.Series {
			joined.join(from, l.Series[name], l.From, largest[name])
		}
	}
	return s, nil
}

// join adds the points of a broker: their sum, or the largest. p begins at the slot from.
func (p Points) join(from int64, o Points, first int64, largest bool) {
	for i, v := range o {
		at := first + int64(i) - from
		if v != v || at < 0 || at >= int64(len(p)) {
			continue
		}
		switch {
		case p[at] != p[at]:
			p[at] = v
		case largest:
			p[at] = max(p[at], v)
		default:
			p[at] += v
		}
	}
}
