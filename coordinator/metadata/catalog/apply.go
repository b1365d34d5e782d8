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
	Trash      []ident.TopicID // topics that came into the trash, or left it
	Nodes      bool            // the permanent key of some broker
	Channels   []ident.TopicID // topics whose channels' keys changed, perhaps several times each

	copied map[ident.TopicID]bool // topics whose map of channels no reader has yet
}

// Apply takes one change of the watch and returns the touched entries. After a reset
// these are all old entries and all new ones. It does not notify.
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
		s, err := metadata.DecodePartition(e)
		if err != nil {
			return err
		}
		c.mu.partitions[p] = s
		out.Partitions = append(out.Partitions, p)
		return nil
	}
	if n, ok := c.keys.ParseLive(e.Key); ok {
		s, err := metadata.DecodeNode(e)
		if err != nil {
			return err
		}
		c.mu.live[n] = Registration{NodeState: s, Incarnation: metadata.IncarnationOf(e), Mod: e.Mod}
		out.Live = append(out.Live, n)
		return nil
	}
	if name, ok := c.keys.ParseTopic(e.Key); ok {
		s, err := metadata.DecodeTopic(e)
		if err != nil {
			return err
		}
		c.setTopicLocked(name, s)
		out.Topics = append(out.Topics, name)
		return nil
	}
	if id, name, ok := c.keys.ParseChannel(e.Key); ok {
		s, err := metadata.DecodeChannel(e)
		if err != nil {
			return err
		}
		c.setChannelLocked(id, name, &s, out)
		out.Channels = append(out.Channels, id)
		return nil
	}
	return c.putNodeLocked(e, out)
}

func (c *Catalog) putNodeLocked(e metadata.Entry, out *Touched) error {
	if n, ok := c.keys.ParseNode(e.Key); ok {
		s, err := metadata.DecodeNode(e)
		if err != nil {
			return err
		}
		c.mu.nodes[n] = s
		out.Nodes = true
	}
	if e.Key == c.keys.Controller() {
		c.mu.controller = ident.Node(e.Value)
	}
	if id, ok := c.keys.ParseTrash(e.Key); ok {
		s, err := metadata.DecodeTrash(e)
		if err != nil {
			return err
		}
		c.mu.trash[id] = s
		out.Trash = append(out.Trash, id)
	}
	if e.Key == c.keys.Clock() {
		s, err := metadata.DecodeClock(e)
		if err != nil {
			return err
		}
		c.mu.clockMS = s.ElapsedMS
	}
	if e.Key == c.keys.Config() {
		s, err := metadata.DecodeCluster(e)
		if err != nil {
			return err
		}
		c.mu.cluster = s
	}
	return nil
}

// setTopicLocked replaces a topic's record. A name that has another id than before
// takes nothing of the topic that had it.
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

// setChannelLocked sets a channel in a copy of its topic's map, because readers keep
// the old one. Each change copies a map once, however many channels the topic has.
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
