package coordinator

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
)

// registration is what live/<node> says: one run of one broker.
type registration struct {
	meta.NodeState
	Incarnation ident.Incarnation
	Mod         int64
}

// catalog is what the watch of the metadata last said. The watcher's goroutine
// writes it; anybody reads it. Values are replaced, never changed in place, so
// what a method returns may be kept.
type catalog struct {
	keys meta.Keys
	log  logrus.FieldLogger
	mu   struct {
		sync.RWMutex
		topics     map[string]meta.TopicState
		names      map[ident.TopicID]string
		partitions map[ident.Partition]meta.PartitionState
		channels   map[ident.TopicID]map[string]meta.ChannelState
		gone       map[goneKey]time.Time // channels whose keys went, at most maxGone
		deleted    map[string]deletion   // of topics, by name: the last
		nodes      map[ident.Node]meta.NodeState
		live       map[ident.Node]registration
		controller ident.Node
		cluster    meta.ClusterState
	}
}

type goneKey struct {
	topic   ident.TopicID
	channel string
}

// maxGone bounds the memory: beyond it all that went before is forgotten.
const maxGone = 1 << 12

// changed names what a change of the metadata touched.
type changed struct {
	partitions []ident.Partition
	live       []ident.Node
	topics     []string
	channels   []ident.TopicID        // whose channels' keys changed
	copied     map[ident.TopicID]bool // whose map of channels is one that no reader has yet
}

func newCatalog(keys meta.Keys, log logrus.FieldLogger) *catalog {
	c := &catalog{keys: keys, log: log}
	c.clearLocked()
	return c
}

func (c *catalog) clearLocked() {
	c.mu.topics = map[string]meta.TopicState{}
	c.mu.names = map[ident.TopicID]string{}
	c.mu.partitions = map[ident.Partition]meta.PartitionState{}
	c.mu.channels = map[ident.TopicID]map[string]meta.ChannelState{}
	c.mu.gone = map[goneKey]time.Time{}
	c.mu.deleted = map[string]deletion{}
	c.mu.nodes = map[ident.Node]meta.NodeState{}
	c.mu.live = map[ident.Node]registration{}
	c.mu.controller = ""
	c.mu.cluster = meta.ClusterState{}
}

// apply takes one change of the watch and says what it touched. After a reset
// that is everything there was and everything there is.
func (c *catalog) apply(ch meta.Change) changed {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := changed{copied: map[ident.TopicID]bool{}}
	if ch.Reset {
		out.partitions = slices.Collect(maps.Keys(c.mu.partitions))
		out.live = slices.Collect(maps.Keys(c.mu.live))
		out.topics = slices.Collect(maps.Keys(c.mu.topics))
		c.clearLocked()
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

func (c *catalog) putLocked(e meta.Entry, out *changed) error {
	if p, ok := c.keys.ParsePartition(e.Key); ok {
		s, err := meta.DecodePartition(e)
		if err != nil {
			return err
		}
		c.mu.partitions[p] = s
		out.partitions = append(out.partitions, p)
		return nil
	}
	if n, ok := c.keys.ParseLive(e.Key); ok {
		s, err := meta.DecodeNode(e)
		if err != nil {
			return err
		}
		c.mu.live[n] = registration{NodeState: s, Incarnation: meta.IncarnationOf(e), Mod: e.Mod}
		out.live = append(out.live, n)
		return nil
	}
	if name, ok := c.keys.ParseTopic(e.Key); ok {
		s, err := meta.DecodeTopic(e)
		if err != nil {
			return err
		}
		old, known := c.mu.topics[name]
		if known && old.ID != s.ID {
			delete(c.mu.names, old.ID)
			delete(c.mu.channels, old.ID)
		}
		if at := s.DeletedAtMS; at != 0 && c.mu.deleted[name].atMS != at {
			c.mu.deleted[name] = deletion{atMS: at}
			if known {
				c.mu.deleted[name] = deletion{atMS: at, seen: time.Now()}
			}
		}
		c.mu.topics[name], c.mu.names[s.ID] = s, name
		out.topics = append(out.topics, name)
		return nil
	}
	if id, name, ok := c.keys.ParseChannel(e.Key); ok {
		s, err := meta.DecodeChannel(e)
		if err != nil {
			return err
		}
		c.setChannelLocked(id, name, &s, out)
		out.channels = append(out.channels, id)
		return nil
	}
	return c.putNodeLocked(e)
}

func (c *catalog) putNodeLocked(e meta.Entry) error {
	if n, ok := c.keys.ParseNode(e.Key); ok {
		s, err := meta.DecodeNode(e)
		if err != nil {
			return err
		}
		c.mu.nodes[n] = s
	}
	if e.Key == c.keys.Controller() {
		c.mu.controller = ident.Node(e.Value)
	}
	if e.Key == c.keys.Config() {
		s, err := meta.DecodeCluster(e)
		if err != nil {
			return err
		}
		c.mu.cluster = s
	}
	return nil
}

func (c *catalog) deleteLocked(key string, out *changed) {
	if p, ok := c.keys.ParsePartition(key); ok {
		delete(c.mu.partitions, p)
		out.partitions = append(out.partitions, p)
	} else if n, ok := c.keys.ParseLive(key); ok {
		delete(c.mu.live, n)
		out.live = append(out.live, n)
	} else if name, ok := c.keys.ParseTopic(key); ok {
		delete(c.mu.names, c.mu.topics[name].ID)
		delete(c.mu.topics, name)
		delete(c.mu.deleted, name)
		out.topics = append(out.topics, name)
	} else if id, name, ok := c.keys.ParseChannel(key); ok {
		c.setChannelLocked(id, name, nil, out)
		if len(c.mu.gone) >= maxGone {
			clear(c.mu.gone)
		}
		c.mu.gone[goneKey{id, name}] = time.Now()
	} else if n, ok := c.keys.ParseNode(key); ok {
		delete(c.mu.nodes, n)
	} else if key == c.keys.Controller() {
		c.mu.controller = ""
	}
}

// setChannelLocked replaces a topic's map, because readers keep the old one; once in a
// change, however many channels it has.
func (c *catalog) setChannelLocked(id ident.TopicID, name string, s *meta.ChannelState, out *changed) {
	of := c.mu.channels[id]
	if !out.copied[id] {
		of, out.copied[id] = maps.Clone(of), true
	}
	if of == nil {
		of = map[string]meta.ChannelState{}
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
