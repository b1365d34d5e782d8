package stockdata

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var (
	// ErrInUse means that a process has locked the data path.
	ErrInUse = errors.New("a running nsqd uses it: stop that nsqd first")
	// ErrFork means that the fork youzan/nsq has written the data path.
	ErrFork = errors.New("it is a data path of the fork youzan/nsq, which has a different format: let that nsqd run, and move its messages with a consumer")
	// ErrNoData means that the directory has no nsqd.dat.
	ErrNoData = errors.New("no nsqd.dat: it is not the data path of a stock nsqd 1.x")
)

// ephemeral is the suffix of topics and channels without a disk queue.
const ephemeral = "#ephemeral"

// Path is the locked data path of a stopped nsqd.
type Path struct {
	Dir     string
	Version string  // of the nsqd that has written it
	Topics  []Topic // by name
	lock    *os.File
}

// Topic is a durable topic. Its own queue has the messages that no channel has received yet.
type Topic struct {
	Name     string
	Paused   bool
	Unlisted bool // nsqd.dat does not name it, but it has a disk queue
	Queue    *Queue
	Channels []Channel // by name
}

// Channel is a durable channel of a topic.
type Channel struct {
	Name     string
	Paused   bool
	Unlisted bool
	Queue    *Queue
}

// metadata is the content of nsqd.dat.
type metadata struct {
	Version string `json:"version"`
	Topics  []struct {
		Name     string `json:"name"`
		Paused   bool   `json:"paused"`
		Channels []struct {
			Name   string `json:"name"`
			Paused bool   `json:"paused"`
		} `json:"channels"`
	} `json:"topics"`
}

// Open locks a data path as a stock nsqd does, and reads its topics, channels and the positions
// of their queues. Errors: ErrInUse, ErrFork, ErrNoData, errors of files.
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
		return ErrFork
	}
	name := filepath.Join(p.Dir, "nsqd.dat")
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return ErrNoData
	}
	if err := unix.Flock(int(p.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return ErrInUse
	} else if err != nil {
		return fmt.Errorf("lock the directory: %w", err)
	}
	text, err := os.ReadFile(name) // no process changes it now
	if err != nil {
		return err
	}
	var m metadata
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("nsqd.dat: %w", err)
	}
	p.Version = m.Version
	for _, t := range m.Topics { // a stock nsqd leaves out invalid names, too
		if !durable(t.Name) {
			continue
		}
		topic := p.topic(t.Name)
		topic.Paused, topic.Unlisted = t.Paused, false
		for _, c := range t.Channels {
			if durable(c.Name) {
				channel := topic.channel(c.Name)
				channel.Paused, channel.Unlisted = c.Paused, false
			}
		}
	}
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

// valid is a valid name of a topic or channel.
var valid = regexp.MustCompile(`^[.a-zA-Z0-9_-]+(#ephemeral)?$`)

func validName(s string) bool { return len(s) <= 64 && valid.MatchString(s) }

func durable(s string) bool { return validName(s) && !strings.HasSuffix(s, ephemeral) }

// topic returns the topic with a name. A new one counts as unlisted.
func (p *Path) topic(name string) *Topic {
	at, found := slices.BinarySearchFunc(p.Topics, name, func(t Topic, name string) int { return strings.Compare(t.Name, name) })
	if !found {
		p.Topics = slices.Insert(p.Topics, at, Topic{Name: name, Unlisted: true, Queue: newQueue(p.Dir, name)})
	}
	return &p.Topics[at]
}

// channel returns the channel with a name. A new one counts as unlisted.
func (t *Topic) channel(name string) *Channel {
	at, found := slices.BinarySearchFunc(t.Channels, name, func(c Channel, name string) int { return strings.Compare(c.Name, name) })
	if !found {
		t.Channels = slices.Insert(t.Channels, at, Channel{Name: name, Unlisted: true, Queue: newQueue(t.Queue.dir, t.Name+":"+name)})
	}
	return &t.Channels[at]
}

// queueFile is the name of a file of a disk queue: TOPIC.diskqueue.000001.dat, or
// TOPIC:CHANNEL.diskqueue.meta.dat.
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
		if !validName(topic) || of && !validName(channel) {
			continue
		}
		q := p.topic(topic).Queue
		if of {
			q = p.topic(topic).channel(channel).Queue
		}
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
