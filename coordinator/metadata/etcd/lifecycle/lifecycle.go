// Package lifecycle decides how a member of the embedded etcd starts: whether it founds a cluster, votes with the log on its
// disk, joins as a new member, or waits. It is a pure function of the state of the member's own disk (Self) and of the other
// members' reports (Report); the I/O around it is coordinator/metadata/etcd.
//
// A raft member that returns with an emptied disk, or with an older copy of its disk, has lost entries that it
// acknowledged and votes that it gave. If it still votes, a majority can lack committed entries. etcd cannot notice,
// because the member has its old name and address.
//
// # Invariants
//
//  1. A cluster is founded once: when all configured members report an empty disk at the same time. The first of them
//     by name proposes a Foundation, which names the disk of each founder. A founder accepts it only if it names the
//     founder's current disk. A disk that was emptied in between has another id, so its member never founds.
//  2. A member whose log is lost never votes under its old identity. It joins a running cluster as a new member.
//  3. A member whose disk is older than when another member last saw it (boot counter) never votes with it. It joins a
//     running cluster as a new member, unless the disk has started another life since then: its log then has a history
//     that others may have followed.
//  4. A member whose disk has the marks of a copy (DoubtCopied) never votes with it. It joins a running cluster as a new
//     member, regardless of the copy's age. If no cluster runs, an operator may vouch for the disk, which removes the marks.
//  5. A member does not start while another member runs on an older disk than this member saw, nor while another member
//     saw a different life of a third member's disk: two histories would meet. An operator has to choose.
//  6. Members of two foundations never start together.
//
// In doubt a member always waits, and its decision names the missing members. The model in this package's tests
// explores the resulting guarantee: there is one history of metadata, and no later leader lacks a committed entry of
// it, unless an operator vouched for an older disk.
//
// A copy without marks, such as the snapshot of a whole machine, is detected only if a member answers that saw the
// disk's later life (rule 3). Otherwise the copy stays in use. Its boot counter then passes values of the later life,
// but with different starts (StartRecord), so the two lives are distinguished as soon as a member of each answers.
package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// DiskID identifies the content of one member's disk. It is random and created with the data path; a member that joins
// as a new member gets a new id.
type DiskID string

// Members maps the names of the configured members to the URLs of their peer ports.
type Members map[string]string

// Foundation is the founders' agreement, made once in the life of a cluster. Its ID becomes part of etcd's cluster token, so
// that etcd itself refuses a member of another foundation.
type Foundation struct {
	ID       string            `json:"id"`
	Founders Members           `json:"founders"`
	Disks    map[string]DiskID `json:"disks"` // by founder
}

// Doubt is how likely it is that the data path is a copy, judged by its marks.
type Doubt int

// The doubts, from none to certain.
const (
	DoubtNone   Doubt = iota
	DoubtMoved        // the disk was attached to another machine, or under another device number
	DoubtCopied       // the files are copies: another inode or time of creation
)

// StartRecord is one start of a broker. On disk and in messages, by name (JSON): append only.
type StartRecord struct {
	Boot int64  `json:"boot"` // the boot counter at which it began
	ID   string `json:"id"`   // random
}

// DiskState is a state of a member's disk. On disk and in messages, by name (JSON): append only.
type DiskState struct {
	Disk   DiskID        `json:"disk"`
	Boot   int64         `json:"boot"`             // the boot counter
	Starts []StartRecord `json:"starts,omitempty"` // the latest starts, in order
}

// LaterThan reports whether a disk in the state now is an old copy of the disk in the state s.
func (s DiskState) LaterThan(now DiskState) bool {
	return s.Disk == now.Disk && s.Boot > now.Boot || s.OtherLife(now)
}

// OtherLife reports whether a copy of one disk was put back between two states of it: a boot counter that both have passed
// belongs to different starts. An unknown start proves nothing.
func (s DiskState) OtherLife(t DiskState) bool {
	both := min(s.Boot, t.Boot)
	a, b := s.startAt(both), t.startAt(both)
	return s.Disk == t.Disk && a != "" && b != "" && a != b
}

// maxStarts bounds DiskState.Starts.
const maxStarts = 32

// Begin returns the state of a disk after a start with a random id. known is the disk's state in the metadata. If that
// state is later, the disk was not in use during the starts up to it, and the disk's own starts are dropped.
func (s DiskState) Begin(id string, known DiskState) DiskState {
	if known.LaterThan(s) {
		s.Starts = nil
	}
	s.Boot = max(s.Boot, known.Boot) + 1
	if n := len(s.Starts); n == 0 || s.Starts[n-1].ID != id { // otherwise the same start raises its counter again
		s.Starts = slices.Concat(s.Starts, []StartRecord{{Boot: s.Boot, ID: id}})
		s.Starts = s.Starts[max(0, len(s.Starts)-maxStarts):]
	}
	return s
}

// startAt returns the start that had a boot counter; "" if it is not known.
func (s DiskState) startAt(boot int64) (id string) {
	for _, start := range s.Starts {
		if start.Boot <= boot {
			id = start.ID
		}
	}
	return id
}

// Self is a member's own state when it starts.
type Self struct {
	Name       string
	Members    Members     // configured, this one included
	Absent     []string    // members without which an operator allows the cluster to be founded
	State      DiskState   // of the data path
	Foundation *Foundation // the foundation accepted by this disk; nil: none
	Started    bool        // this disk has once held the member's log
	HasLog     bool        // this disk holds the log now
	Doubt      Doubt
	Seen       map[string]DiskState // last seen state of each other member
}

// Report is the answer of another member, sent as JSON: fields may be added, never renamed or removed.
type Report struct {
	DiskState                       // of the member
	Foundation *Foundation          `json:"foundation,omitempty"`
	Started    bool                 `json:"started"`        // its disk has held its log at some time
	Votes      bool                 `json:"votes"`          // its etcd was started, with or without a majority
	Running    bool                 `json:"running"`        // its etcd has a leader: another member can join the cluster
	Members    Members              `json:"members"`        // configured at the member
	SeenYou    DiskState            `json:"seen_you"`       // state of the querying member's disk, as it last saw it
	Seen       map[string]DiskState `json:"seen,omitempty"` // state of each other member's disk, as it last saw it
}

// empty reports whether the member has no part in any history.
func (r Report) empty() bool {
	return r.Foundation == nil && !r.Started && !r.Running && !r.Votes
}

// Action is what a member does next.
type Action int

// The actions.
const (
	Wait   Action = iota // query again; Decision.Why and For name the missing condition
	Found                // store Decision.Foundation as accepted, then query again
	Start                // start etcd with the content of the disk, as a founder or as the existing member
	Join                 // discard the member's log, if any, and join the running cluster as a new member
	Refuse               // end; Decision.Why says what an operator has to repair
)

// Decision is the result of Decide.
type Decision struct {
	Action     Action
	Foundation *Foundation // with Found; with Start of a founder that has no log yet
	For        []string    // with Wait: missing members, sorted
	Why        string      // a sentence for operators; "" = nothing to report
}

// Decide returns how the member starts. newID returns a random id for a foundation. waited: the member has waited long enough
// for members that may only be late; it never overrides a rule that protects history.
func Decide(s Self, reports map[string]Report, waited bool, newID func() string) Decision {
	d := decider{Self: s, reports: reports, waited: waited}
	switch {
	case len(s.others()) == 0 && !s.hasHistory():
		return s.proposeFoundation(nil, newID)
	case len(s.others()) == 0:
		return d.onlyMember()
	}
	if other, found := d.otherFoundation(); found {
		return Decision{Action: Refuse, Why: fmt.Sprintf("%s belongs to another foundation (%s) of this cluster than this broker (%s): "+
			"one of the two was founded a second time; find out which holds the data, and start the other with an empty data path",
			other, d.reports[other].Foundation.ID, s.Foundation.ID)}
	}
	switch {
	case s.HasLog:
		return d.withLog()
	case s.Started:
		return d.joinOrWait("the metadata directory of this broker is gone")
	case s.Foundation != nil && s.Foundation.Disks[s.Name] == s.State.Disk:
		return d.founder()
	case s.Foundation != nil:
		return d.joinOrWait("this broker was about to join the cluster")
	}
	return d.emptyDisk(newID)
}

type decider struct {
	Self
	reports map[string]Report
	waited  bool
}

func (s Self) others() []string { return s.Members.but(s.Name) }

func (s Self) hasHistory() bool { return s.Foundation != nil || s.Started || s.HasLog }

// onlyMember decides for a member that is configured without others.
func (d decider) onlyMember() Decision {
	if d.Started && !d.HasLog {
		return Decision{Action: Refuse, Why: "the metadata directory of this broker is gone, and no other member is configured that could have a copy: " +
			"restore the data path from a backup, or start with an empty one"}
	}
	return Decision{Action: Start, Foundation: d.Foundation}
}

// otherFoundation returns a member of another foundation. A disk without a foundation matches any.
func (d decider) otherFoundation() (name string, found bool) {
	if d.Foundation == nil {
		return "", false
	}
	for _, n := range d.others() {
		if f := d.reports[n].Foundation; f != nil && f.ID != d.Foundation.ID {
			return n, true
		}
	}
	return "", false
}

// withLog decides for a member whose disk holds its log.
func (d decider) withLog() Decision {
	if by := d.sawLaterLife(); by != "" {
		seen := d.reports[by].SeenYou
		why := fmt.Sprintf("%s saw boot counter %d of this broker%s, its data path has %d: the data path is an old copy", by, seen.Boot, inAnother(seen, d.State), d.State.Boot)
		if seen.OtherLife(d.State) { // keep the log: a majority may need it
			return Decision{Action: Wait, For: []string{by}, Why: why + ". " + chooseHistory}
		}
		return d.joinOrWait(why)
	}
	if stale := d.runsOnOldDisk(); stale != "" {
		seen, now := d.Seen[stale], d.reports[stale].DiskState
		advice := fmt.Sprintf("Stop %s and start it with an empty data path", stale)
		if seen.OtherLife(now) {
			advice = chooseHistory
		}
		return Decision{Action: Wait, For: []string{stale}, Why: fmt.Sprintf("%s runs on an old copy of its disk: this broker saw its boot counter at %d%s, it has %d now. "+
			"%s; until then this broker keeps its metadata and does not join", stale, seen.Boot, inAnother(seen, now), now.Boot, advice)}
	}
	if by, of := d.sawOtherLife(); by != "" {
		return Decision{Action: Wait, For: []string{by}, Why: fmt.Sprintf("%s ran on an old copy of its disk: this broker saw its boot counter at %d, %s saw it at %d in another start. "+
			"%s; until then this broker keeps its metadata and does not join", of, d.Seen[of].Boot, by, d.reports[by].Seen[of].Boot, chooseHistory)}
	}
	start := Decision{Action: Start, Foundation: d.Foundation}
	switch {
	case d.Doubt == DoubtNone:
		return start
	case d.Doubt == DoubtCopied:
		return d.joinOrWait("the data path is a copy, and may be older than what this broker has promised")
	}
	silent := d.silent(d.others())
	const moved = "the disk was attached to another machine or device since the last start"
	if len(silent) == 0 || d.someRuns() {
		return start
	}
	if d.waited {
		start.Why = moved + ", and " + strings.Join(silent, ", ") + " cannot tell whether it is the newest: starting with it"
		return start
	}
	return Decision{Action: Wait, For: silent, Why: moved}
}

// sawLaterLife returns a member that saw a later state of this disk.
func (d decider) sawLaterLife() string {
	for _, n := range d.others() {
		if d.reports[n].SeenYou.LaterThan(d.State) {
			return n
		}
	}
	return ""
}

// runsOnOldDisk returns a voting member whose disk is older than when this broker saw it.
func (d decider) runsOnOldDisk() string {
	for _, n := range d.others() {
		if r := d.reports[n]; r.Votes && d.Seen[n].LaterThan(r.DiskState) {
			return n
		}
	}
	return ""
}

// sawOtherLife returns a member that saw a different life of a third member's disk than this broker did. It has
// followed the third member in that life, so its log may have a different history. Both wait, even if none votes yet:
// they may start at the same time.
func (d decider) sawOtherLife() (by, of string) {
	for _, n := range d.others() {
		for _, third := range d.others() {
			if third != n && d.Seen[third].OtherLife(d.reports[n].Seen[third]) {
				return n, third
			}
		}
	}
	return "", ""
}

// chooseHistory is the advice for two histories of the metadata. If a disk has begun another start, it has had a
// majority since it was restored: otherwise its boot counter would not have been raised.
const chooseHistory = "The metadata has two histories, and an operator has to choose one (docs/operations/failures.md, Two histories)"

// inAnother is the part of a sentence that distinguishes two lives of a disk.
func inAnother(seen, now DiskState) string {
	if seen.OtherLife(now) {
		return " in another start"
	}
	return ""
}

func (d decider) someRuns() bool {
	return slices.ContainsFunc(d.others(), func(n string) bool { return d.reports[n].Running })
}

// joinOrWait joins a running cluster, or waits until one runs.
func (d decider) joinOrWait(why string) Decision {
	if d.someRuns() {
		return Decision{Action: Join, Why: why + ": joining the running cluster as a new member"}
	}
	return Decision{Action: Wait, For: d.others(), Why: why}
}

// founder decides for a member that has accepted a foundation and never had a log. It starts when a majority of the founders
// has accepted it: otherwise a single member could wait forever for a foundation that was lost with its proposer.
func (d decider) founder() Decision {
	if d.Doubt == DoubtCopied {
		return d.joinOrWait("the data path is a copy of one that was to found the cluster")
	}
	accepted := 1
	for _, n := range d.others() {
		if _, founder := d.Foundation.Founders[n]; !founder {
			continue
		}
		if r := d.reports[n]; r.Foundation != nil && r.Foundation.ID == d.Foundation.ID {
			accepted++
		}
	}
	if accepted > len(d.Foundation.Founders)/2 {
		return Decision{Action: Start, Foundation: d.Foundation}
	}
	return Decision{Action: Wait, For: d.silent(d.otherFounders()), Why: "the cluster is being founded"}
}

// emptyDisk decides for a member with an empty disk, which is new or wiped: only the other members know.
func (d decider) emptyDisk(newID func() string) Decision {
	if d.someRuns() {
		return Decision{Action: Join, Why: "the cluster runs without this broker's metadata directory: joining as a new member"}
	}
	for _, n := range d.others() {
		if f := d.reports[n].Foundation; f != nil && f.Disks[d.Name] == d.State.Disk && d.covers(f.Founders) {
			return Decision{Action: Found, Foundation: f}
		}
	}
	for _, n := range d.others() {
		if r, answered := d.reports[n]; answered && !r.empty() {
			return Decision{Action: Wait, For: d.silent(d.otherFounders()), Why: fmt.Sprintf("%s holds metadata of this cluster, and too few members run to join it", n)}
		}
	}
	for _, n := range d.otherFounders() {
		if r, answered := d.reports[n]; answered && !maps.Equal(r.Members, d.Members) {
			return Decision{Action: Wait, For: []string{n}, Why: fmt.Sprintf("%s is configured with the members %s, this broker with %s: "+
				"--etcd-initial-cluster has to be the same on all brokers that found a cluster", n, r.Members, d.Members)}
		}
	}
	if missing := d.silent(d.otherFounders()); len(missing) > 0 {
		return Decision{Action: Wait, For: missing, Why: "no metadata directory; a new cluster is founded when all its members are there"}
	}
	if first := slices.Min(slices.Collect(maps.Keys(d.founders()))); first != d.Name {
		return Decision{Action: Wait, For: []string{first}, Why: "the cluster is being founded"}
	}
	return d.proposeFoundation(d.reports, newID)
}

// covers reports whether all founders are configured members, at the same addresses.
func (d decider) covers(founders Members) bool {
	for n, url := range founders {
		if d.Members[n] != url {
			return false
		}
	}
	return true
}

// proposeFoundation proposes that the founders, which all have empty disks, found the cluster.
func (s Self) proposeFoundation(reports map[string]Report, newID func() string) Decision {
	f := &Foundation{ID: newID(), Founders: s.founders(), Disks: map[string]DiskID{s.Name: s.State.Disk}}
	for _, n := range s.otherFounders() {
		f.Disks[n] = reports[n].Disk
	}
	return Decision{Action: Found, Foundation: f}
}

// founders returns the configured members without those that an operator named absent.
func (s Self) founders() Members {
	f := maps.Clone(s.Members)
	maps.DeleteFunc(f, func(n, _ string) bool { return slices.Contains(s.Absent, n) })
	return f
}

func (s Self) otherFounders() []string { return s.founders().but(s.Name) }

// but returns the sorted names of all members but one.
func (m Members) but(name string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m)), func(n string) bool { return n == name })
}

// silent returns the members that have not answered.
func (d decider) silent(of []string) []string {
	return slices.DeleteFunc(of, func(n string) bool { _, answered := d.reports[n]; return answered })
}

// String returns the members in the form of --etcd-initial-cluster.
func (m Members) String() string {
	var parts []string
	for _, n := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, n+"="+m[n])
	}
	return strings.Join(parts, ",")
}
