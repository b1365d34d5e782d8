package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
)

const (
	// Changes are logged when no further change has come for changesQuiet, or after changesMost at the latest.
	changesQuiet = 300 * time.Millisecond
	changesMost  = 2 * time.Second
	// changesNamed is the number of partitions that a line names.
	changesNamed = 5
)

// changeKind is one kind of change of many partitions.
type changeKind uint8

const (
	changeLeads   changeKind = iota // this broker leads
	changeUnleads                   // this broker no longer leads
	changeFollows                   // another broker leads a replica here
	changeLeft                      // a broker left the in-sync set of a partition led here
	changeJoined                    // a broker joined it
)

var changeTexts = [...]string{
	changeLeads:   "gained leadership of partitions",
	changeUnleads: "lost leadership of partitions",
	changeFollows: "following a new leader",
	changeLeft:    "broker removed from in-sync set",
	changeJoined:  "broker added to in-sync set",
}

// changes aggregates the changes of partitions, so that a failover logs a few lines with counts. Its lock is a leaf.
type changes struct {
	mu          sync.Mutex
	first, last time.Time // zero: nothing has gathered
	gathered    map[change]*changed
}

type change struct {
	kind changeKind
	node ident.Node // the broker concerned; "": this one
}

type changed struct {
	count int
	named []string // the first of them
}

// note adds the changes between two views of a partition. It is cheap for puts, which change positions only.
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
			if !ident.HasMember(now.ISR, m.Node) {
				c.add(p, now, change{changeLeft, m.Node})
			}
		}
		for _, m := range now.ISR {
			if !ident.HasMember(old.ISR, m.Node) {
				c.add(p, now, change{changeJoined, m.Node})
			}
		}
	}
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

func (c *changes) log(log logrus.FieldLogger, now time.Time) {
	gathered := c.take(now)
	order := func(a, b change) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.node, b.node)) }
	for _, k := range slices.SortedFunc(maps.Keys(gathered), order) {
		x := gathered[k]
		line := log.WithFields(logrus.Fields{"count": x.count, "first": x.text()})
		if k.node != "" {
			line = line.WithField("node", k.node)
		}
		level := logrus.InfoLevel
		if k.kind == changeLeft {
			level = logrus.WarnLevel
		}
		line.Log(level, changeTexts[k.kind])
	}
}

func (x *changed) text() string {
	text := strings.Join(x.named, ", ")
	if more := x.count - len(x.named); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}
