package catalog

import (
	"maps"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Touched names the entries that a change of the metadata touched.
type Touched struct {
	Partitions []ident.Partition
	Live       []ident.Node
	Topics     []string
	Trash      []ident.TopicID // topics that entered or left the trash
	Nodes      bool            // the permanent key of some broker
	Channels   []ident.TopicID // topics whose channels' keys changed; may repeat

	copied map[ident.TopicID]bool // topics whose map of channels is new, and not yet shared with readers
}

// Apply applies one change of the watch and returns the touched entries; after a reset all old and all new entries. It
// does not notify.
func (c *Catalog) Apply(ch metadata.Change) Touched {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := Touched{copied: map[ident.TopicID]bool{}}
	if ch.Reset {
		out.Partitions = slices.Collect(maps.Keys(c.mu.partitions))
		out.Live = slices.Collect(maps.Keys(c.mu.live))
		out.Topics = slices.Collect(maps.Keys(c.mu.topics))
		out.Trash = slices.Collect(maps.Keys(c.mu.trash))
		c.mu.state = emptyState()
		out.Nodes = true
	}
	for _, key := range ch.Deletes {
		c.deleteLocked(key, &out)
	}
	for _, e := range ch.Puts {
		if err := c.putLocked(e, &out); err != nil {
			c.log.WithError(err).Error("metadata cannot be read, the key is left as it was")
		}
	}
	return out
}

func (c *Catalog) putLocked(e metadata.Entry, out *Touched) error {
	if p, ok := c.keys.ParsePartition(e.Key); ok {
		return set(c.mu.partitions, p, e, metadata.DecodePartition, &out.Partitions)
	}
	if n, ok := c.keys.ParseLive(e.Key); ok {
		return set(c.mu.live, n, e, registration, &out.Live)
	}
	if n, ok := c.keys.ParseNode(e.Key); ok {
		out.Nodes = true
		return set(c.mu.nodes, n, e, metadata.DecodeNode, nil)
	}
	if id, ok := c.keys.ParseTrash(e.Key); ok {
		return set(c.mu.trash, id, e, metadata.DecodeTrash, &out.Trash)
	}
	var err error
	if name, ok := c.keys.ParseTopic(e.Key); ok {
		var s metadata.TopicState
		if s, err = metadata.DecodeTopic(e); err == nil {
			c.setTopicLocked(name, s)
			out.Topics = append(out.Topics, name)
		}
	} else if id, name, ok := c.keys.ParseChannel(e.Key); ok {
		var s metadata.ChannelState
		if s, err = metadata.DecodeChannel(e); err == nil {
			c.setChannelLocked(id, name, &s, out)
			out.Channels = append(out.Channels, id)
		}
	}
	switch e.Key {
	case c.keys.Controller():
		c.mu.controller = ident.Node(e.Value)
	case c.keys.Clock():
		var s metadata.ClockState
		if s, err = metadata.DecodeClock(e); err == nil {
			c.mu.clockMS = s.ElapsedMS
		}
	case c.keys.Config():
		var s metadata.ClusterState
		if s, err = metadata.DecodeCluster(e); err == nil {
			c.mu.cluster = s
		}
	}
	return err
}

// set decodes a value into the state, and notes its key as touched.
func set[K comparable, S any](state map[K]S, key K, e metadata.Entry, decode func(metadata.Entry) (S, error), touched *[]K) error {
	s, err := decode(e)
	if err != nil {
		return err
	}
	state[key] = s
	if touched != nil {
		*touched = append(*touched, key)
	}
	return nil
}

func registration(e metadata.Entry) (Registration, error) {
	s, err := metadata.DecodeNode(e)
	return Registration{NodeState: s, Incarnation: ident.Incarnation(e.Create), Mod: e.Mod}, err
}

// setTopicLocked replaces a topic's record. A new topic with the name of an earlier one inherits nothing.
func (c *Catalog) setTopicLocked(name string, s metadata.TopicState) {
	old, known := c.mu.topics[name]
	if known && old.ID != s.ID {
		delete(c.mu.names, old.ID)
		if !old.Trashed { // the channels of a trashed topic have keys
			delete(c.mu.channels, old.ID)
		}
	}
	if at := s.DeletedAtMS; at != 0 && c.mu.deleted[name].atMS != at {
		c.mu.deleted[name] = deletion{atMS: at}
		if known {
			c.mu.deleted[name] = deletion{atMS: at, seen: time.Now()}
		}
	}
	c.mu.topics[name], c.mu.names[s.ID] = s, name
}

func (c *Catalog) deleteLocked(key string, out *Touched) {
	if p, ok := c.keys.ParsePartition(key); ok {
		delete(c.mu.partitions, p)
		out.Partitions = append(out.Partitions, p)
	} else if n, ok := c.keys.ParseLive(key); ok {
		delete(c.mu.live, n)
		out.Live = append(out.Live, n)
	} else if name, ok := c.keys.ParseTopic(key); ok {
		delete(c.mu.names, c.mu.topics[name].ID)
		delete(c.mu.topics, name)
		delete(c.mu.deleted, name)
		out.Topics = append(out.Topics, name)
	} else if id, name, ok := c.keys.ParseChannel(key); ok {
		c.setChannelLocked(id, name, nil, out)
		if len(c.mu.gone) >= maxGone {
			clear(c.mu.gone)
		}
		c.mu.gone[goneChannel{id, name}] = time.Now()
	} else if n, ok := c.keys.ParseNode(key); ok {
		delete(c.mu.nodes, n)
		out.Nodes = true
	} else if id, ok := c.keys.ParseTrash(key); ok {
		delete(c.mu.trash, id)
		out.Trash = append(out.Trash, id)
	} else if key == c.keys.Controller() {
		c.mu.controller = ""
	}
}

// setChannelLocked sets a channel in a copy of its topic's map, because readers share the old one. Each map is copied
// at most once per change.
func (c *Catalog) setChannelLocked(id ident.TopicID, name string, s *metadata.ChannelState, out *Touched) {
	of := c.mu.channels[id]
	if !out.copied[id] {
		of, out.copied[id] = maps.Clone(of), true
	}
	if of == nil {
		of = map[string]metadata.ChannelState{}
	}
	if s == nil {
		delete(of, name)
	} else {
		of[name] = *s
	}
	if len(of) == 0 {
		delete(c.mu.channels, id)
	} else {
		c.mu.channels[id] = of
	}
}
