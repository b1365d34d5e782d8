package engine

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
)

const (
	// changesQuiet is how long no change comes before those that have gathered are logged, and
	// changesMost how long changes gather at most.
	changesQuiet = 300 * time.Millisecond
	changesMost  = 2 * time.Second
	// changesNamed is the number of partitions that a line names.
	changesNamed = 5
)

// changeKind is one kind of change of many partitions.
type changeKind uint8

const (
	changeLeads   changeKind = iota // this broker leads
	changeUnleads                   // it does not lead any more
	changeFollows                   // another broker leads a replica here
	changeLeft                      // a broker left the in-sync set of a partition led here
	changeJoined                    // it joined
)

// changes gathers the changes of partitions, so that a failover of 300 partitions is a few lines
// with counts. Its lock is a leaf. The clock logs them.
type changes struct {
	mu          sync.Mutex
	first, last time.Time // zero: nothing has gathered
	gathered    map[change]*changed
}

type change struct {
	kind changeKind
	node ident.Node // the other broker; "": none
}

type changed struct {
	count int
	named []string // the first of them
}

// note adds the changes between two views of a partition. Its cost is not on the way of a put: views
// that differ in positions alone have the same role, leader and in-sync set.
func (c *changes) note(p *Partition, old, now *replica.View) {
	leads, led := now.Role == replica.Leader, old.Role == replica.Leader
	switch {
	case leads && !led:
		c.add(p, now, change{changeLeads, ""})
	case led && !leads && now.Role != replica.Electing:
		c.add(p, now, change{changeUnleads, ""})
	}
	if now.Role == replica.Follower && now.Leader != old.Leader && now.Leader != "" {
		c.add(p, now, change{changeFollows, now.Leader})
	}
	if leads && led && !slices.Equal(old.ISR, now.ISR) {
		for _, m := range old.ISR {
			if !hasMember(now.ISR, m.Node) {
				c.add(p, now, change{changeLeft, m.Node})
			}
		}
		for _, m := range now.ISR {
			if !hasMember(old.ISR, m.Node) {
				c.add(p, now, change{changeJoined, m.Node})
			}
		}
	}
}

func hasMember(isr []ident.Member, n ident.Node) bool {
	return slices.ContainsFunc(isr, func(m ident.Member) bool { return m.Node == n })
}

func (c *changes) add(p *Partition, v *replica.View, of change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gathered == nil {
		c.gathered = map[change]*changed{}
	}
	if c.last = time.Now(); c.first.IsZero() {
		c.first = c.last
	}
	x := c.gathered[of]
	if x == nil {
		x = &changed{}
		c.gathered[of] = x
	}
	if x.count++; x.count <= changesNamed {
		x.named = append(x.named, fmt.Sprintf("%s/%d epoch %d", p.topic, p.id.Number, v.Epoch))
	}
}

// take returns the changes that are due at a time.
func (c *changes) take(now time.Time) map[change]*changed {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first.IsZero() || now.Sub(c.last) < changesQuiet && now.Sub(c.first) < changesMost {
		return nil
	}
	gathered := c.gathered
	c.gathered, c.first = nil, time.Time{}
	return gathered
}

// log writes one line for each kind of change and broker concerned.
func (c *changes) log(log logrus.FieldLogger, now time.Time) {
	gathered := c.take(now)
	kinds := make([]change, 0, len(gathered))
	for k := range gathered {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b change) int {
		return strings.Compare(fmt.Sprint(a.kind, a.node), fmt.Sprint(b.kind, b.node))
	})
	for _, k := range kinds {
		x := gathered[k]
		line := log.WithFields(logrus.Fields{"count": x.count, "first": x.text()})
		if k.node != "" {
			line = line.WithField("node", k.node)
		}
		switch k.kind {
		case changeLeads:
			line.Info("gained leadership of partitions")
		case changeUnleads:
			line.Info("lost leadership of partitions")
		case changeFollows:
			line.Info("following a new leader")
		case changeLeft:
			line.Warn("broker removed from in-sync set")
		case changeJoined:
			line.Info("broker added to in-sync set")
		}
	}
}

// text names the first partitions.
func (x *changed) text() string {
	text := strings.Join(x.named, ", ")
	if more := x.count - len(x.named); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}
