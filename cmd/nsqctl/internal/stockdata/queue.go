package stockdata

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lockstepmq/lockstep/internal/api"
)

const HeaderSize = 8 + 2 + 16 // the size of a record with an empty body: 8 bytes of time, 2 of attempts, 16 of id

// Queue is a disk queue: files of records, each with its size before it.
type Queue struct {
	dir, name string
	meta      *meta           // nil: the queue has no metadata, or it cannot be read
	files     map[int64]int64 // sizes in bytes by number
}

// meta is the content of NAME.diskqueue.meta.dat. A stock nsqd writes it every 2,500 messages or
// 2 s, and when it stops: after a kill it is behind the files.
type meta struct {
	depth       int64
	read, write Position
}

// Position is a position between two records of a queue.
type Position struct {
	File   int64 `json:"file"`
	Offset int64 `json:"offset"`
}

func (p Position) before(o Position) bool {
	return p.File < o.File || p.File == o.File && p.Offset < o.Offset
}

// Damage is a part of a file without a readable record.
type Damage struct {
	File   string // without its directory
	Offset int64
	Bytes  int64 // that were left out
	Why    string
}

// String names the file, the offset and the reason.
func (d Damage) String() string {
	return fmt.Sprintf("%s, offset %d: %s (%d bytes left out)", d.File, d.Offset, d.Why, d.Bytes)
}

// Depth is the number of messages in the metadata; false if there is no metadata. It is exact unless the nsqd was
// killed.
func (q *Queue) Depth() (int64, bool) {
	if q.meta == nil {
		return 0, len(q.files) == 0
	}
	return q.meta.depth, true
}

// Overwritten reports whether a stock nsqd would overwrite the files: without metadata it begins a new queue.
func (q *Queue) Overwritten() bool { return q.meta == nil && len(q.files) > 0 }

// Fingerprint changes when an nsqd writes to the queue or reads from it.
func (q *Queue) Fingerprint() string {
	text := "no metadata"
	if m := q.meta; m != nil {
		text = fmt.Sprint(m.depth, m.read, m.write)
	}
	for _, n := range slices.Sorted(maps.Keys(q.files)) {
		text += fmt.Sprintf(" %d:%d", n, q.files[n])
	}
	return text
}

func (q *Queue) file(number int64) string {
	return fmt.Sprintf("%s.diskqueue.%06d.dat", q.name, number)
}

// readMeta reads the metadata. Metadata that cannot be parsed counts as none.
func (q *Queue) readMeta() error {
	text, err := os.ReadFile(filepath.Join(q.dir, q.name+".diskqueue.meta.dat"))
	if err != nil {
		return err
	}
	var m meta
	if _, err := fmt.Sscanf(string(text), "%d\n%d,%d\n%d,%d\n", &m.depth, &m.read.File, &m.read.Offset, &m.write.File, &m.write.Offset); err == nil {
		q.meta = &m
	}
	return nil
}

// Start is the position of the first message: the read position of the metadata, or else the beginning of the oldest
// file.
func (q *Queue) Start() Position {
	switch {
	case q.meta != nil:
		return q.meta.read
	case len(q.files) > 0:
		return Position{File: slices.Min(slices.Collect(maps.Keys(q.files)))}
	}
	return Position{}
}

func (q *Queue) last() int64 { return slices.Max(append(slices.Collect(maps.Keys(q.files)), -1)) }

// Reader returns the messages of a queue in their order. One goroutine uses it.
type Reader struct {
	Damage []Damage // left out so far
	q      *Queue
	at     Position
	f      *os.File
	in     *bufio.Reader
}

// Read begins at a position: Start, or one that Reader.Position has returned. From Start it reports bytes that the metadata
// counts, and that the files do not have: the machine lost them.
func (q *Queue) Read(from Position) *Reader {
	r := &Reader{q: q, at: from}
	m := q.meta
	if m == nil || from != m.read {
		return r
	}
	if size, there := q.files[m.write.File]; m.read.before(m.write) && size < m.write.Offset {
		why := "the file ends before the position of the metadata"
		if !there {
			why = "the file is missing"
		}
		r.Damage = append(r.Damage, Damage{q.file(m.write.File), size, m.write.Offset - size, why})
	}
	return r
}

// Position is the position after the last message.
func (r *Reader) Position() Position { return r.at }

// Close closes the open file.
func (r *Reader) Close() {
	if r.f != nil {
		_ = r.f.Close()
		r.f = nil
	}
}

// Next returns the record of the next message, the body after HeaderSize bytes; io.EOF after the last one. Other errors
// come from the disk.
func (r *Reader) Next() ([]byte, error) {
	for {
		if r.f == nil {
			if err := r.open(); err != nil {
				return nil, err
			}
		}
		left := r.q.files[r.at.File] - r.at.Offset
		if left <= 0 {
			r.nextFile()
			continue
		}
		record, why, err := r.record(left)
		if err != nil {
			return nil, fmt.Errorf("%s, offset %d: %w", r.q.file(r.at.File), r.at.Offset, err)
		}
		if why != "" {
			r.leaveOut(r.at.Offset, left, why)
			r.nextFile()
			continue
		}
		r.at.Offset += 4 + int64(len(record))
		if len(record) > HeaderSize {
			return record, nil
		}
		r.leaveOut(r.at.Offset-4-HeaderSize, 4+HeaderSize, "a message without a body")
	}
}

// open opens the file of the position, or a later one.
func (r *Reader) open() error {
	last := r.q.last()
	for ; r.at.File <= last; r.nextFile() {
		if _, there := r.q.files[r.at.File]; !there {
			// A stock nsqd deletes a file that it has read before it writes the metadata, so the file of the read
			// position may be missing.
			if m := r.q.meta; m == nil || r.at.File != m.read.File {
				r.leaveOut(0, 0, "the file is missing")
			}
			continue
		}
		f, err := os.Open(filepath.Join(r.q.dir, r.q.file(r.at.File)))
		if err != nil {
			return err
		}
		if _, err := f.Seek(r.at.Offset, io.SeekStart); err != nil {
			_ = f.Close()
			return err
		}
		r.f, r.in = f, bufio.NewReaderSize(f, 256<<10)
		return nil
	}
	return io.EOF
}

// leaveOut reports bytes of the current file as damaged and skips them.
func (r *Reader) leaveOut(offset, bytes int64, why string) {
	r.Damage = append(r.Damage, Damage{r.q.file(r.at.File), offset, bytes, why})
}

func (r *Reader) nextFile() {
	r.Close()
	r.at = Position{File: r.at.File + 1}
}

// record reads one record of a file of which left bytes remain. A non-empty why means that no record begins here.
func (r *Reader) record(left int64) (record []byte, why string, err error) {
	if left < 4 {
		return nil, "the record is cut off", nil
	}
	var head [4]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return nil, "", noEnd(err)
	}
	size := int64(int32(binary.BigEndian.Uint32(head[:])))
	switch {
	case size < HeaderSize:
		return nil, fmt.Sprintf("a record of %d bytes cannot be", size), nil
	case size > left-4:
		return nil, fmt.Sprintf("the record of %d bytes is cut off", size), nil
	}
	record = make([]byte, size)
	_, err = io.ReadFull(r.in, record)
	return record, "", noEnd(err)
}

// noEnd turns an unexpected end into a different error, because io.EOF is Next's regular end.
func noEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file has become shorter while it was read")
	}
	return err
}

var (
	// errInUse means that a process has locked the data path.
	errInUse = errors.New("a running nsqd uses it: stop that nsqd first")
	// errFork means that the fork youzan/nsq has written the data path.
	errFork = errors.New("it is a data path of the fork youzan/nsq, which has a different format: let that nsqd run, and move its messages with a consumer")
	// errNoData means that the directory has no nsqd.dat.
	errNoData = errors.New("no nsqd.dat: it is not the data path of a stock nsqd 1.x")
)

// Path is the locked data path of a stopped nsqd.
type Path struct {
	Dir     string
	Version string   // the version of the nsqd that wrote it
	Topics  []Source // by name
	lock    *os.File
}

// Source is a durable topic or channel. The queue of a topic has the messages that no channel has received yet.
type Source struct {
	Name     string
	Paused   bool
	Unlisted bool // nsqd.dat does not name it, but it has a disk queue
	Queue    *Queue
	Channels []Source // of a topic, by name
}

// listed is a topic or channel of nsqd.dat.
type listed struct {
	Name     string   `json:"name"`
	Paused   bool     `json:"paused"`
	Channels []listed `json:"channels"`
}

// Open locks a data path as a stock nsqd does, and reads its topics, channels and the positions
// of their queues. Errors: errInUse, errFork, errNoData, errors of files.
func Open(dir string) (*Path, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, errors.Unwrap(err))
	}
	p := &Path{Dir: dir, lock: f}
	if err := p.read(); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return p, nil
}

// Close releases the lock.
func (p *Path) Close() error { return p.lock.Close() }

func (p *Path) read() error {
	if fork(p.Dir) {
		return errFork
	}
	name := filepath.Join(p.Dir, "nsqd.dat")
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return errNoData
	}
	if err := unix.Flock(int(p.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return errInUse
	} else if err != nil {
		return fmt.Errorf("lock the directory: %w", err)
	}
	text, err := os.ReadFile(name) // no process changes it now
	if err != nil {
		return err
	}
	var m struct {
		Version string   `json:"version"`
		Topics  []listed `json:"topics"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("nsqd.dat: %w", err)
	}
	p.Version = m.Version
	add(&p.Topics, p.Dir, "", m.Topics)
	return p.addQueues()
}

// fork reports whether the fork has written the directory: its metadata is nsqd.<id>.dat, where
// each entry has the number of a partition.
func fork(dir string) bool {
	names, _ := filepath.Glob(filepath.Join(dir, "nsqd.*.dat"))
	for _, name := range names {
		text, err := os.ReadFile(name)
		var m struct {
			Topics []map[string]any `json:"topics"`
			Delays any              `json:"enabled_delayedqueue"`
		}
		if err != nil || json.Unmarshal(text, &m) != nil {
			continue
		}
		for _, t := range m.Topics {
			if _, ok := t["partition"]; ok {
				return true
			}
		}
		if m.Delays != nil {
			return true
		}
	}
	return false
}

// add adds the durable topics or channels of nsqd.dat to a list. A stock nsqd also leaves out invalid names.
func add(list *[]Source, dir, prefix string, all []listed) {
	for _, l := range all {
		if api.ValidName(l.Name) && !strings.HasSuffix(l.Name, api.EphemeralSuffix) {
			s := source(list, dir, prefix, l.Name)
			s.Paused, s.Unlisted = l.Paused, false
			add(&s.Channels, dir, l.Name+":", l.Channels)
		}
	}
}

// source finds a topic or channel in a list, or adds it as unlisted. The name of its queue begins with the prefix.
func source(list *[]Source, dir, prefix, name string) *Source {
	at, found := slices.BinarySearchFunc(*list, name, func(s Source, name string) int { return strings.Compare(s.Name, name) })
	if !found {
		*list = slices.Insert(*list, at, Source{Name: name, Unlisted: true, Queue: &Queue{dir: dir, name: prefix + name, files: map[int64]int64{}}})
	}
	return &(*list)[at]
}

// queueFile is the name of a file of a disk queue: TOPIC.diskqueue.000001.dat, or TOPIC:CHANNEL.diskqueue.meta.dat.
var queueFile = regexp.MustCompile(`^(.+)\.diskqueue\.(meta|[0-9]{6,})\.dat$`)

// addQueues finds the files of all disk queues. A kill can leave a queue that nsqd.dat does not
// name: a stock nsqd reads it when a client names the topic and the channel.
func (p *Path) addQueues() error {
	entries, err := os.ReadDir(p.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		m := queueFile.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		topic, channel, of := strings.Cut(m[1], ":")
		if !api.ValidName(topic) || of && !api.ValidName(channel) {
			continue
		}
		s := source(&p.Topics, p.Dir, "", topic)
		if of {
			s = source(&s.Channels, p.Dir, topic+":", channel)
		}
		q := s.Queue
		if m[2] == "meta" {
			if err := q.readMeta(); err != nil {
				return err
			}
			continue
		}
		number, err := strconv.ParseInt(m[2], 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name(), err)
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		q.files[number] = info.Size()
	}
	return nil
}
