package metadatatest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
)

// historyLimit bounds the changes a Model keeps; older changes are compacted, as in an operator's etcd.
const historyLimit = 10_000

// Model is the store as a plain value: revisions, compares, leases, history and compaction with etcd's rules, and no
// goroutine, clock, lock or random choice. The simulator steps it directly; Memory puts a lock and watches around it.
type Model struct {
	revision  int64
	compacted int64 // changes up to here are forgotten
	lastLease int64
	entries   map[string]metadata.Entry
	leases    map[int64]struct{}
	history   []metadata.Change // one for each revision above compacted, in order
}

// NewModel returns an empty store at revision 1, like a new etcd.
func NewModel() *Model {
	return &Model{revision: 1, compacted: 1, entries: map[string]metadata.Entry{}, leases: map[int64]struct{}{}}
}

// Revision is the revision of the last change.
func (m *Model) Revision() int64 { return m.revision }

// Get reads one key.
func (m *Model) Get(key string) (metadata.Entry, bool) {
	e, ok := m.entries[key]
	return cloneEntry(e), ok
}

// List reads all keys below prefix, sorted by key.
func (m *Model) List(prefix string) []metadata.Entry {
	var out []metadata.Entry
	for key, e := range m.entries {
		if strings.HasPrefix(key, prefix) {
			out = append(out, cloneEntry(e))
		}
	}
	slices.SortFunc(out, func(a, b metadata.Entry) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// Txn applies all puts if all compares hold, as one revision.
func (m *Model) Txn(compares []metadata.Compare, puts []metadata.Put) (ok bool, rev int64, err error) {
	if err := m.check(compares, puts); err != nil {
		return false, 0, err
	}
	for _, c := range compares {
		if e := m.entries[c.Key]; !matches(c.Create, e.Create) || !matches(c.Mod, e.Mod) {
			return false, m.revision, nil
		}
	}
	for _, p := range puts {
		if _, there := m.leases[p.Lease]; p.Lease != 0 && !there {
			return false, 0, metadata.ErrNoLease
		}
	}
	m.apply(puts)
	return true, m.revision, nil
}

// Grant makes a lease. It lives until Revoke: a Model has no time.
func (m *Model) Grant() int64 {
	m.lastLease++
	m.leases[m.lastLease] = struct{}{}
	return m.lastLease
}

// Revoke ends a lease and deletes its keys in one revision; it reports whether the lease existed.
func (m *Model) Revoke(id int64) bool {
	if _, ok := m.leases[id]; !ok {
		return false
	}
	delete(m.leases, id)
	var gone []metadata.Put
	for key, e := range m.entries {
		if e.Lease == id {
			gone = append(gone, metadata.Put{Key: key, Delete: true})
		}
	}
	slices.SortFunc(gone, func(a, b metadata.Put) int { return strings.Compare(a.Key, b.Key) })
	m.apply(gone)
	return true
}

// Compact forgets the changes up to and including rev.
func (m *Model) Compact(rev int64) {
	rev = min(rev, m.revision)
	for len(m.history) > 0 && m.history[0].Revision <= rev {
		m.history = m.history[1:]
	}
	m.compacted = max(m.compacted, rev)
}

// Since returns the changes below prefix after revision rev; ok is false if some of them are compacted, and the caller
// has to List.
func (m *Model) Since(prefix string, rev int64) (changes []metadata.Change, ok bool) {
	if rev < m.compacted {
		return nil, false
	}
	first, _ := slices.BinarySearchFunc(m.history, rev+1, func(c metadata.Change, rev int64) int { return cmp.Compare(c.Revision, rev) })
	for _, c := range m.history[first:] {
		if c = below(c, prefix); len(c.Puts)+len(c.Deletes) > 0 {
			changes = append(changes, c)
		}
	}
	return changes, true
}

// check refuses the transactions that etcd refuses in any state.
func (m *Model) check(compares []metadata.Compare, puts []metadata.Put) error {
	if len(compares) > metadata.EmbeddedMaxTxn || len(puts) > metadata.EmbeddedMaxTxn {
		return fmt.Errorf("%w: %d compares and %d puts, at most %d each", metadata.ErrInvalid, len(compares), len(puts), metadata.EmbeddedMaxTxn)
	}
	seen := make(map[string]struct{}, len(puts))
	for _, p := range puts {
		if _, twice := seen[p.Key]; twice || p.Key == "" {
			return fmt.Errorf("%w: key %q is empty or written twice", metadata.ErrInvalid, p.Key)
		}
		seen[p.Key] = struct{}{}
	}
	return nil
}

// apply writes one revision; deletes of absent keys change nothing.
func (m *Model) apply(puts []metadata.Put) {
	c := metadata.Change{Revision: m.revision + 1}
	for _, p := range puts {
		old, there := m.entries[p.Key]
		switch {
		case !p.Delete:
			e := metadata.Entry{Key: p.Key, Value: slices.Clone(p.Value), Create: c.Revision, Mod: c.Revision, Lease: p.Lease}
			if there {
				e.Create = old.Create
			}
			m.entries[p.Key] = e
			c.Puts = append(c.Puts, e)
		case there:
			delete(m.entries, p.Key)
			c.Deletes = append(c.Deletes, p.Key)
		}
	}
	if len(c.Puts)+len(c.Deletes) == 0 {
		return
	}
	m.revision = c.Revision
	m.history = append(m.history, c)
	if over := len(m.history) - historyLimit; over > 0 {
		m.Compact(m.history[over-1].Revision)
	}
}

// below keeps the keys below prefix.
func below(c metadata.Change, prefix string) metadata.Change {
	out := metadata.Change{Revision: c.Revision}
	for _, e := range c.Puts {
		if strings.HasPrefix(e.Key, prefix) {
			out.Puts = append(out.Puts, cloneEntry(e))
		}
	}
	for _, key := range c.Deletes {
		if strings.HasPrefix(key, prefix) {
			out.Deletes = append(out.Deletes, key)
		}
	}
	return out
}

// matches compares a revision with that of a condition; -1 matches any revision, and a key that does not exist has
// revision 0.
func matches(want, have int64) bool { return want == -1 || want == have }

func cloneEntry(e metadata.Entry) metadata.Entry {
	e.Value = slices.Clone(e.Value)
	return e
}
