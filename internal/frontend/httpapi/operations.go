package httpapi

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

// operation returns the operation that was read, or one that answers the first argument that could not be read.
func (a *arguments) operation(op api.Operation) api.Operation {
	if a.err != nil {
		return api.Unreadable{Operation: op, Err: a.err}
	}
	return op
}

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
	a := arguments{Values: values}
	a.choice("ordered", &o.Ordered)
	a.positive("partitions", &o.Partitions)
	a.positive("replication_factor", &o.ReplicationFactor)
	a.positive("min_in_sync", &o.MinInSync)
	o.Durability = a.Get("durability")
	readOptions(&a, &o.Limits)
	return a.operation(o)
}

func readSetTopic(topic string, values url.Values) api.Operation {
	o := api.SetTopic{Topic: topic, Durability: values.Get("durability")}
	a := arguments{Values: values}
	readOptions(&a, &o.Limits)
	return a.operation(o)
}

// readDeleteTopic reads a deletion. byBroker: the request came from NSQ's tools.
func readDeleteTopic(topic string, values url.Values, byBroker bool) api.Operation {
	o := api.DeleteTopic{Topic: topic, BrokerByBroker: byBroker}
	a := arguments{Values: values}
	a.boolean("now", &o.Now)
	return a.operation(o)
}

func readUndelete(topic string, values url.Values) api.Operation {
	o := api.UndeleteTopic{Topic: topic}
	a := arguments{Values: values}
	a.topicID("id", &o.ID)
	return a.operation(o)
}

func readPurge(topic string, values url.Values) api.Operation {
	o := api.PurgeTopic{Topic: topic}
	a := arguments{Values: values}
	a.topicID("id", &o.ID)
	return a.operation(o)
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
	return a.operation(o)
}

func readPartitions(topic string, values url.Values) api.Operation {
	o := api.SetPartitions{Topic: topic}
	a := arguments{Values: values}
	a.positive("partitions", &o.Partitions)
	a.boolean("reorder", &o.Reorder)
	return a.operation(o)
}

func readDecommission(values url.Values) api.Operation {
	o := api.Decommission{Node: ident.Node(values.Get("node"))}
	a := arguments{Values: values}
	a.boolean("cancel", &o.Cancel)
	return a.operation(o)
}

func readDrain(values url.Values) api.Operation {
	o := api.Drain{Node: ident.Node(values.Get("node"))}
	a := arguments{Values: values}
	a.boolean("replicas", &o.Replicas)
	a.boolean("cancel", &o.Cancel)
	return a.operation(o)
}

func readCreateChannel(n names) api.Operation {
	o := api.CreateChannel{Topic: n.topic, Channel: n.channel, From: n.values.Get("from"), Filter: n.values.Get("filter")}
	a := arguments{Values: n.values}
	a.choice("ordered", &o.Ordered)
	return a.operation(o)
}

func readPause(paused bool) func(names) api.Operation {
	return func(n names) api.Operation {
		return api.PauseChannel{Topic: n.topic, Channel: n.channel, Paused: paused}
	}
}

func readSeek(n names) api.Operation {
	o := api.SeekChannel{Topic: n.topic, Channel: n.channel, To: n.values.Get("to"), Partition: -1}
	a := arguments{Values: n.values}
	if text := a.Get("partition"); text != "" {
		p, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			a.fail("partition must be a number")
		}
		o.Partition = int(p)
	}
	a.boolean("dry_run", &o.DryRun)
	return a.operation(o)
}

func readOrder(n names) api.Operation {
	a := arguments{Values: n.values}
	ordered, err := strconv.ParseBool(a.Get("order"))
	if err != nil {
		a.fail("order must be true or false")
	}
	return a.operation(api.OrderChannel{Topic: n.topic, Channel: n.channel, Ordered: ordered})
}

// readPolicy reads the options of a policy. An empty argument clears its option.
func readPolicy(n names) api.Operation {
	o := api.SetPolicy{Topic: n.topic, Channel: n.channel}
	a := arguments{Values: n.values}
	for i := range option.Policies {
		if r := &option.Policies[i]; a.Has(r.Name) {
			if err := o.Policy.Read(r, a.Get(r.Name)); err != nil {
				a.fail("%s %w", r.Name, err)
			}
		}
	}
	return a.operation(o)
}
