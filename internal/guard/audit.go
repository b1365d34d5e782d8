package guard

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

const (
	// auditKept is how many actions /v1/audit shows.
	auditKept = 1000
	// refusalsPerSecond bounds the entries of all refused attempts together: an attacker
	// must neither fill the disk with log lines nor push the actions out of the list.
	refusalsPerSecond = 10
	// maxText bounds each text of an entry in bytes: a stranger chooses a part of them.
	maxText = 512
)

// Entry is one administrative action, executed or refused.
type Entry struct {
	Time     time.Time `json:"time"`
	Identity string    `json:"identity"`
	Remote   string    `json:"remote"`
	Action   string    `json:"action"` // method and path, or a command
	Detail   string    `json:"detail,omitempty"`
	Status   int       `json:"status"`
	Result   string    `json:"result"` // ok, refused or failed
	// Omitted counts refused attempts since the entry before that were not noted.
	Omitted int `json:"omitted,omitempty"`
}

// Results of an Entry.
const (
	ResultOK      = "ok"
	ResultRefused = "refused"
	ResultFailed  = "failed"
)

// Audit keeps the last actions of this broker, and logs each.
type Audit struct {
	log logrus.FieldLogger
	mu  struct {
		sync.Mutex
		ring    []Entry
		next    int
		second  int64 // in which refused were counted
		refused int
		omitted int
	}
}

func newAudit(log logrus.FieldLogger) *Audit { return &Audit{log: log} }

// Note keeps and logs an action. Refused ones beyond the limit of a second are counted.
func (a *Audit) Note(e Entry) {
	e.Identity, e.Action, e.Detail = clip(e.Identity), clip(e.Action), clip(e.Detail)
	e.Time = e.Time.UTC()
	if !a.keep(&e) {
		return
	}
	line, err := json.Marshal(e)
	if err != nil {
		return // it is strings and numbers
	}
	a.log.WithField("audit", true).Info(string(line))
}

func (a *Audit) keep(e *Entry) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.Result == ResultRefused {
		if now := e.Time.Unix(); now != a.mu.second {
			a.mu.second, a.mu.refused = now, 0
		}
		if a.mu.refused++; a.mu.refused > refusalsPerSecond {
			a.mu.omitted++
			return false
		}
	}
	e.Omitted, a.mu.omitted = a.mu.omitted, 0
	if len(a.mu.ring) < auditKept {
		a.mu.ring = append(a.mu.ring, *e)
		return true
	}
	a.mu.ring[a.mu.next] = *e
	a.mu.next = (a.mu.next + 1) % auditKept
	return true
}

// Entries lists the kept actions, oldest first.
func (a *Audit) Entries() []Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append(append([]Entry{}, a.mu.ring[a.mu.next:]...), a.mu.ring[:a.mu.next]...)
}
