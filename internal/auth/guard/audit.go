package guard

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/api"
)

const (
	// auditKept is how many actions /v1/audit shows.
	auditKept = 1000
	// refusalsPerSecond bounds the entries of all refused attempts: an attacker must neither fill the disk with log lines nor
	// displace the actions.
	refusalsPerSecond = 10
	// maxText bounds each text of an entry in bytes: strangers choose parts of them.
	maxText = 512
)

// Entry is one administrative action, executed or refused.
type Entry struct {
	Time     time.Time `json:"time"`
	Identity string    `json:"identity"`
	Remote   string    `json:"remote"`
	Action   string    `json:"action"` // method and path, or a command
	Detail   string    `json:"detail,omitempty"`
	Status   int       `json:"status,omitempty"` // of HTTP
	Result   string    `json:"result"`           // ok, refused or failed
	// Implied: a put or a subscription created it.
	Implied bool `json:"implied,omitempty"`
	// Omitted counts refused attempts since the entry before that were not noted.
	Omitted int `json:"omitted,omitempty"`
}

// Results of an Entry.
const (
	ResultOK      = "ok"
	ResultRefused = "refused"
	ResultFailed  = "failed"
)

// Audit has the last actions of this broker, logs each, and appends it to a file.
type Audit struct {
	log  logrus.FieldLogger
	file *AuditFile // nil = none
	mu   struct {
		sync.Mutex
		actions ring
		implied ring
		second  int64 // in which refused were counted
		refused int
		omitted int
		unsaved int // entries that are not in the file, since the last one that is
	}
}

func newAudit(log logrus.FieldLogger, file *AuditFile) *Audit { return &Audit{log: log, file: file} }

// Note records and logs an action. Refused ones beyond the limit of a second are only counted.
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
	a.save(line)
}

// save appends a line to the file. A file that cannot be written stops no action: the log has the entry too. The first failure is
// logged as an error, and the first success after it as a warning with the number of missing lines.
func (a *Audit) save(line []byte) {
	if a.file == nil {
		return
	}
	err := a.file.Write(line)
	a.mu.Lock()
	missing := a.mu.unsaved
	if err == nil {
		a.mu.unsaved = 0
	} else {
		a.mu.unsaved++
	}
	a.mu.Unlock()
	switch {
	case err != nil && missing == 0:
		a.log.WithError(err).Error("cannot write the audit file, its entries are only in the log until writing succeeds again")
	case err == nil && missing > 0:
		a.log.WithField("missing", missing).Warn("audit file is writable again, its missing entries are in the log")
	}
}

// Note records what a client's put or subscription created, or was refused (err).
func (g *Guard) Note(who api.Requester, detail string, err error) {
	e := Entry{Time: time.Now(), Identity: who.Identity, Remote: who.Remote, Action: who.Action, Detail: detail, Result: ResultOK, Implied: true}
	if err != nil {
		e.Result, e.Detail = ResultRefused, detail+": "+err.Error()
	}
	g.Audit.Note(e)
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
	a.addLocked(e)
	return true
}

func (a *Audit) addLocked(e *Entry) {
	if e.Implied {
		a.mu.implied.add(e)
	} else {
		a.mu.actions.add(e)
	}
}

// Entries lists the last actions, and at most as many implied ones, oldest first. They are stored separately: topics created by
// puts must not displace the actions.
func (a *Audit) Entries() []Entry {
	a.mu.Lock()
	all := append(a.mu.actions.list(), a.mu.implied.list()...)
	a.mu.Unlock()
	slices.SortStableFunc(all, func(x, y Entry) int { return x.Time.Compare(y.Time) })
	return all
}

// Restore adds entries of an earlier process of the broker, oldest first. They are in its log already.
func (a *Audit) Restore(past []Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	actions, implied := a.mu.actions.list(), a.mu.implied.list()
	a.mu.actions, a.mu.implied = ring{}, ring{}
	for _, e := range slices.Concat(past, actions, implied) {
		a.addLocked(&e)
	}
}

// ring has the last auditKept entries.
type ring struct {
	entries []Entry
	next    int
}

func (r *ring) add(e *Entry) {
	if len(r.entries) < auditKept {
		r.entries = append(r.entries, *e)
		return
	}
	r.entries[r.next] = *e
	r.next = (r.next + 1) % auditKept
}

func (r *ring) list() []Entry {
	return append(append([]Entry{}, r.entries[r.next:]...), r.entries[:r.next]...) // never nil: JSON has [] and not null
}
