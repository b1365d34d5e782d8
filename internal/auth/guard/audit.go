package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
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
	// maxText bounds each text of an entry in bytes, because unauthenticated clients choose parts of them.
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

// Audit keeps the last actions of this broker, logs each, and appends it to a file.
type Audit struct {
	log  logrus.FieldLogger
	file *AuditFile // nil = none
	mu   struct {
		sync.Mutex
		actions []Entry // the last auditKept, oldest first
		implied []Entry // as actions: topics created by puts must not displace the actions
		second  int64   // the second in which refused attempts were counted
		refused int
		omitted int
		unsaved int // entries that could not be saved since the last saved one
	}
}

func newAudit(log logrus.FieldLogger, file *AuditFile) *Audit { return &Audit{log: log, file: file} }

// Note records and logs an action. Refused actions beyond the limit per second are only counted.
func (a *Audit) Note(e Entry) {
	e.Identity, e.Action, e.Detail = clip(e.Identity), clip(e.Action), clip(e.Detail)
	e.Time = e.Time.UTC()
	if !a.keep(&e) {
		return
	}
	line, err := json.Marshal(e)
	if err != nil {
		return // it cannot fail: strings and numbers only
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
	err := a.file.write(line)
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
	list := &a.mu.actions
	if e.Implied {
		list = &a.mu.implied
	}
	if *list = append(*list, *e); len(*list) > auditKept {
		*list = slices.Delete(*list, 0, 1)
	}
}

// Entries lists the last actions, and at most as many implied ones, oldest first.
func (a *Audit) Entries() []Entry {
	a.mu.Lock()
	all := append(append([]Entry{}, a.mu.actions...), a.mu.implied...) // never nil, so that JSON has [] and not null
	a.mu.Unlock()
	slices.SortStableFunc(all, func(x, y Entry) int { return x.Time.Compare(y.Time) })
	return all
}

// Restore adds entries of an earlier process of the broker, oldest first. They are in its log already.
func (a *Audit) Restore(past []Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := slices.Concat(past, a.mu.actions, a.mu.implied)
	a.mu.actions, a.mu.implied = nil, nil
	for _, e := range all {
		a.addLocked(&e)
	}
}

// AuditFile appends JSON lines to a file that only the broker's user may read. If the file was renamed or removed, the next entry
// creates it again: logrotate needs neither a signal nor copytruncate.
type AuditFile struct {
	path string
	mu   struct {
		sync.Mutex
		file *os.File // nil after a failure, until the next entry
		info os.FileInfo
	}
}

// OpenAuditFile opens or creates the file.
func OpenAuditFile(path string) (*AuditFile, error) {
	a := &AuditFile{path: path}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a, a.openLocked()
}

// write appends one line. An error does not change the lines before it.
func (a *AuditFile) write(line []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.followLocked(); err != nil {
		return err
	}
	if _, err := a.mu.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("audit file: %w", err)
	}
	return nil
}

// followLocked reopens the file if its name belongs to another file, or to none.
func (a *AuditFile) followLocked() error {
	if a.mu.file == nil {
		return a.openLocked()
	}
	now, err := os.Stat(a.path)
	switch {
	case err == nil && os.SameFile(now, a.mu.info):
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("audit file: %w", err)
	}
	_ = a.mu.file.Close() // every line was written
	a.mu.file = nil
	return a.openLocked()
}

func (a *AuditFile) openLocked() error {
	file, err := os.OpenFile(a.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("audit file: %w", err)
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm() != 0o600 {
		err = file.Chmod(0o600)
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("audit file: %w", err)
	}
	a.mu.file, a.mu.info = file, info
	return nil
}

// Close closes the file.
func (a *AuditFile) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.file == nil {
		return nil
	}
	err := a.mu.file.Close()
	a.mu.file = nil
	return err
}

// clip shortens an untrusted text and makes it harmless for a terminal. The copy does not reference the request's
// bytes.
func clip(text string) string {
	return api.Printable(strings.Clone(text[:min(len(text), maxText)]))
}

// maxArgument bounds each argument of a long query in the audit, in bytes.
const maxArgument = 128

// Query is a query string for the audit. In a long one the arguments in names come first, and each is truncated
// separately: otherwise a client could hide the topic behind other arguments.
func Query(raw string, names []string) string {
	if len(raw) <= maxText {
		return raw
	}
	values, _ := url.ParseQuery(raw) // the endpoint refuses a malformed query
	var parts []string
	for _, name := range names {
		if values.Has(name) {
			parts = append(parts, cutOff(name+"="+url.QueryEscape(values.Get(name))))
		}
	}
	return strings.Join(append(parts, cutOff(raw)), "&")
}

func cutOff(text string) string {
	if len(text) <= maxArgument {
		return text
	}
	return text[:maxArgument] + "…"
}
