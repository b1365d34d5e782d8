package httpapi

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

// arguments reads the arguments of an operation. A missing or empty argument leaves its target
// unchanged. err keeps the first argument that cannot be read.
type arguments struct {
	url.Values
	err error
}

func (a *arguments) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("%w: "+format, append([]any{api.ErrInvalid}, args...)...)
	}
}

// boolean reads true or false.
func (a *arguments) boolean(name string, to *bool) {
	var v *bool
	if a.choice(name, &v); v != nil {
		*to = *v
	}
}

// choice reads true or false; without the argument it leaves nil.
func (a *arguments) choice(name string, to **bool) {
	text := a.Get(name)
	if text == "" {
		return
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		a.fail("%s must be true or false", name)
	}
	*to = &v
}

// positive reads a number above 0.
func (a *arguments) positive(name string, to *int) {
	text := a.Get(name)
	if text == "" {
		return
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		a.fail("%s must be a positive number", name)
		return
	}
	*to = n
}

// rate reads a number of messages or bytes a second.
func (a *arguments) rate(name string, kind option.Kind, to **int64) {
	text := a.Get(name)
	if text == "" {
		return
	}
	n, err := kind.Parse(text)
	if err != nil {
		a.fail("%s %w", name, err)
		return
	}
	*to = &n
}

// topicID reads the id of a topic.
func (a *arguments) topicID(name string, to *ident.TopicID) {
	text := a.Get(name)
	if text == "" {
		return
	}
	if err := to.UnmarshalText([]byte(text)); err != nil || *to == 0 {
		a.fail("%s must be the id of a topic: 16 hexadecimal digits", name)
	}
}

func readCreateTopic(topic string, values url.Values) api.Operation {
	o := api.CreateTopic{Topic: topic}
	o.Limits = readLimits(values)
	a := arguments{Values: values}
	a.choice("ordered", &o.Ordered)
	a.positive("partitions", &o.Partitions)
	a.positive("replication_factor", &o.ReplicationFactor)
	a.positive("min_in_sync", &o.MinInSync)
	o.Durability = a.Get("durability")
	o.Malformed = a.err
	return o
}

func readSetTopic(topic string, values url.Values) api.Operation {
	o := api.SetTopic{Topic: topic, Durability: values.Get("durability")}
	o.Limits = readLimits(values)
	return o
}

// readDeleteTopic reads a deletion. byBroker: the request came from NSQ's tools.
func readDeleteTopic(topic string, values url.Values, byBroker bool) api.Operation {
	o := api.DeleteTopic{Topic: topic, BrokerByBroker: byBroker}
	a := arguments{Values: values}
	a.boolean("now", &o.Now)
	o.Malformed = a.err
	return o
}

func readUndelete(topic string, values url.Values) api.Operation {
	o := api.UndeleteTopic{Topic: topic}
	a := arguments{Values: values}
	a.topicID("id", &o.ID)
	o.Malformed = a.err
	return o
}

func readPurge(topic string, values url.Values) api.Operation {
	o := api.PurgeTopic{Topic: topic}
	a := arguments{Values: values}
	a.topicID("id", &o.ID)
	o.Malformed = a.err
	return o
}

func readMove(topic string, values url.Values) api.Operation {
	o := api.MoveReplica{Topic: topic, From: ident.Node(values.Get("from")), To: ident.Node(values.Get("to"))}
	var err error
	if o.Partition, err = strconv.Atoi(values.Get("partition")); err != nil {
		o.Partition = -1
	}
	return o
}

func readReplication(topic string, values url.Values) api.Operation {
	o := api.SetReplication{Topic: topic}
	a := arguments{Values: values}
	a.positive("replication_factor", &o.ReplicationFactor)
	a.positive("min_in_sync", &o.MinInSync)
	o.Malformed = a.err
	return o
}

func readPartitions(topic string, values url.Values) api.Operation {
	o := api.SetPartitions{Topic: topic}
	a := arguments{Values: values}
	a.positive("partitions", &o.Partitions)
	a.boolean("reorder", &o.Reorder)
	o.Malformed = a.err
	return o
}

func readDecommission(values url.Values) api.Operation {
	o := api.Decommission{Node: ident.Node(values.Get("node"))}
	a := arguments{Values: values}
	a.boolean("cancel", &o.Cancel)
	o.Malformed = a.err
	return o
}

func readDrain(values url.Values) api.Operation {
	o := api.Drain{Node: ident.Node(values.Get("node"))}
	a := arguments{Values: values}
	a.boolean("replicas", &o.Replicas)
	a.boolean("cancel", &o.Cancel)
	o.Malformed = a.err
	return o
}

func readCreateChannel(n names) api.Operation {
	o := api.CreateChannel{Topic: n.topic, Channel: n.channel, From: n.values.Get("from"), Filter: n.values.Get("filter")}
	a := arguments{Values: n.values}
	a.choice("ordered", &o.Ordered)
	o.Malformed = a.err
	return o
}

func readPause(paused bool) func(names) api.Operation {
	return func(n names) api.Operation {
		return api.PauseChannel{Topic: n.topic, Channel: n.channel, Paused: paused}
	}
}

func readSeek(n names) api.SeekChannel {
	o := api.SeekChannel{Topic: n.topic, Channel: n.channel, To: n.values.Get("to"), Partition: -1}
	if text := n.values.Get("partition"); text != "" {
		p, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			o.Malformed = fmt.Errorf("%w: partition must be a number", api.ErrInvalid)
		}
		o.Partition = int(p)
	}
	a := arguments{Values: n.values}
	a.boolean("dry_run", &o.DryRun)
	if o.Malformed == nil {
		o.Malformed = a.err
	}
	return o
}

func readOrder(n names) api.Operation {
	ordered, err := strconv.ParseBool(n.values.Get("order"))
	if err != nil {
		err = fmt.Errorf("%w: order must be true or false", api.ErrInvalid)
	}
	return api.OrderChannel{Topic: n.topic, Channel: n.channel, Ordered: ordered, Malformed: err}
}

// readPolicy reads max_attempts, dead_letter_topic, retry_backoff and filter. An empty argument
// clears its part.
func readPolicy(n names) api.Operation {
	o := api.SetPolicy{Topic: n.topic, Channel: n.channel}
	a := arguments{Values: n.values}
	if a.Has("max_attempts") {
		v, err := strconv.ParseUint("0"+a.Get("max_attempts"), 10, 16)
		if err != nil {
			a.fail("max_attempts must be 0 to 65535")
		}
		attempts := uint16(v)
		o.MaxAttempts = &attempts
	}
	if a.Has("dead_letter_topic") {
		name := a.Get("dead_letter_topic")
		o.DeadLetterTopic = &name
	}
	if a.Has("filter") {
		text := a.Get("filter")
		o.Filter = &text
	}
	if a.Has("retry_backoff") {
		b, err := api.ParseBackoff(a.Get("retry_backoff"))
		if err != nil && a.err == nil {
			a.err = err
		}
		o.Backoff = &b
	}
	o.Malformed = a.err
	return o
}
