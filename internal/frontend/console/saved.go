package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
)

const (
	// HistoryFile is the name of the file in the data path with a broker's last hour, its events and its audit.
	HistoryFile = "console.history"
	// maxSaved bounds the file; partsFrom is the size from which no part is added. A part is smaller than the rest.
	maxSaved, partsFrom = 1 << 20, maxSaved - 64<<10
	// The sizes up to which the audit, then the events that are no changes of partitions, and then those changes, which may be
	// very many, are added.
	maxSavedAudit, maxSavedOthers, maxSavedEvents = partsFrom / 4, 3 * partsFrom / 8, partsFrom / 2
	// partEntries is the number of events, or audit entries, in a part.
	partEntries = 32
	// maxRead bounds the parts of a file in memory.
	maxRead = 64 << 20
	// saveEvery is how often the file is written. A broker that is killed loses up to this much history.
	saveEvery = time.Minute
	// saveWait is how long the end of Keep waits for a disk.
	saveWait = 2 * time.Second
	// savedFormat changes when the previous release cannot read the parts.
	savedFormat = 1
)

// saved is a part of the file, which is a compressed list of parts. The first one has Format.
type saved struct {
	Format int
	Node   ident.Node
	StepMS int64
	Slot   int64 // of the last sample
	First  int64 // of the first sample

	Audit    []guard.Entry
	Events   []events.Event // the newest first
	Complete bool           // no events are missing

	Kind   trackKind
	Name   string
	Last   int64
	Points [][]float32
}

type trackKind int

const (
	noTrack trackKind = iota
	ofBroker
	ofTopic
	ofChannel
)

// startSave writes the file in its own goroutine, because a disk may hang. It does nothing while the previous write is
// in progress.
func (c *Console) startSave() {
	if c.o.File == "" {
		return
	}
	select {
	case c.saving <- struct{}{}:
		go c.saveAndFree()
	default:
	}
}

// saveAtEnd writes the file for the next process, and does not wait for a disk that hangs.
func (c *Console) saveAtEnd() {
	if c.o.File == "" {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.saving <- struct{}{}
		c.saveAndFree()
	}()
	select {
	case <-done:
	case <-time.After(saveWait):
	}
}

func (c *Console) saveAndFree() {
	defer func() { <-c.saving }()
	err := c.save()
	if err != nil && !c.unsaved {
		c.o.Log.WithError(err).WithField("file", c.o.File).Warn("cannot save the last hour and events for the next start, retrying every minute")
	}
	c.unsaved = err != nil
}

// save writes the file. It holds no lock while it waits for the disk.
func (c *Console) save() error {
	var out bytes.Buffer
	gz, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	enc := gob.NewEncoder(gz)
	// put adds a part, unless the file has reached a size.
	put := func(size int, s *saved) bool {
		if err != nil || out.Len() >= size {
			return false
		}
		if err = enc.Encode(s); err == nil {
			err = gz.Flush() // flush so that the size is known
		}
		return err == nil
	}
	c.mu.Lock()
	head := saved{Format: savedFormat, Node: c.self, StepMS: c.o.Step.Milliseconds(), Slot: c.kept.slot, First: c.kept.firstRun}
	c.mu.Unlock()
	put(partsFrom, &head)
	if c.o.Audit != nil {
		entries := c.o.Audit.Entries()
		slices.Reverse(entries)
		for part := range slices.Chunk(entries, partEntries) {
			put(maxSavedAudit, &saved{Audit: part})
		}
	}
	complete := true
	for _, ofPartition := range []bool{false, true} {
		size := maxSavedOthers
		if ofPartition {
			size = maxSavedEvents
		}
		list, all := c.o.Events.Since(time.Time{}, maxRead, func(e *events.Event) bool { return e.OfPartition() == ofPartition })
		complete = complete && all
		for part := range slices.Chunk(list, partEntries) {
			complete = put(size, &saved{Events: part}) && complete
		}
	}
	put(partsFrom, &saved{Complete: complete})
	for _, x := range c.tracks() {
		if !put(partsFrom, c.trackOf(x.kind, x.name)) {
			break
		}
	}
	if err = errors.Join(err, gz.Close()); err != nil {
		return err
	}
	if err = os.WriteFile(c.o.File+".new", out.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(c.o.File+".new", c.o.File)
}

// namedTrack names a track and the slot of its last value that is not 0.
type namedTrack struct {
	kind trackKind
	name string
	last int64
}

// tracks lists the tracks: the broker's, and then the most recently active first.
func (c *Console) tracks() (list []namedTrack) {
	c.mu.Lock()
	for kind, r := range c.kept.rings {
		for name, t := range r.of {
			list = append(list, namedTrack{kind, name, t.last})
		}
	}
	c.mu.Unlock()
	slices.SortFunc(list, func(a, b namedTrack) int {
		return cmp.Or(cmp.Compare(min(a.kind, ofTopic), min(b.kind, ofTopic)), cmp.Compare(b.last, a.last), cmp.Compare(a.name, b.name))
	})
	return list
}

// trackOf copies a track. The part is empty if the track is gone.
func (c *Console) trackOf(kind trackKind, name string) *saved {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.kept.rings[kind].of[name]
	if t == nil {
		return &saved{}
	}
	s := &saved{Kind: kind, Name: name, Last: t.last}
	for i := range t.points {
		s.Points = append(s.Points, slices.Clone(t.points[i][:]))
	}
	return s
}

// restore reads what an earlier process of this broker saved. The caller has started nothing yet.
func (c *Console) restore() error {
	raw, err := os.ReadFile(c.o.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	gz, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	parts, err := io.ReadAll(io.LimitReader(gz, maxRead)) // read all and verify the checksum before anything is used
	if err != nil {
		return err
	}
	dec := gob.NewDecoder(bytes.NewReader(parts))
	var head saved
	if err := dec.Decode(&head); err != nil {
		return err
	}
	if head.Format != savedFormat || head.Node != c.self {
		return fmt.Errorf("it has format %d and belongs to broker %s", head.Format, head.Node)
	}
	sameStep := head.StepMS == c.o.Step.Milliseconds()
	if sameStep {
		c.kept.slot, c.kept.firstRun = head.Slot, head.First
	}
	var past []events.Event
	var audit []guard.Entry
	complete := false
	for {
		var s saved
		err := dec.Decode(&s)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		past, audit, complete = append(past, s.Events...), append(audit, s.Audit...), complete || s.Complete
		if sameStep && s.Kind != noTrack {
			c.kept.take(&s)
		}
	}
	c.o.Events.Restore(past, complete)
	if c.o.Audit != nil {
		slices.Reverse(audit)
		c.o.Audit.Restore(audit)
	}
	return nil
}

func (k *sampled) take(s *saved) {
	r := k.rings[s.Kind]
	if r == nil || len(s.Points) != r.series {
		return // written by a build with other series
	}
	if t := r.get(s.Name, s.Last, true); t != nil {
		t.last = s.Last
		for i := range t.points {
			copy(t.points[i][:], s.Points[i])
		}
	}
}
