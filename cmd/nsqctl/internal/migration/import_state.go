package migration

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/stockdata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// errNotKnown means that the cluster did not report how many messages a topic has had.
var errNotKnown = errors.New("the number of messages is unknown")

// errNotListed means that a broker has not seen a new topic yet.
var errNotListed = errors.New("the cluster does not list a topic that was created")

// importProgress is the content of the state file of an import.
type importProgress struct {
	Version int                      `json:"v"`
	Topics  map[string]topicProgress `json:"topics"`
	Queues  map[string]string        `json:"queues"` // fingerprints of the data path
	Parts   map[string]*partProgress `json:"parts"`
	Paused  map[string]bool          `json:"paused"`
	file    cli.StateFile
}

// topicProgress is a topic of the cluster when the import began.
type topicProgress struct {
	ID       ident.TopicID `json:"id"`
	Messages int64         `json:"messages"` // that it had had
}

type partProgress struct {
	Position  stockdata.Position `json:"position"` // behind the messages that were all answered OK
	Published int64              `json:"published"`
}

// loadImport reads the state file; without one the import begins.
func loadImport(name string) (*importProgress, error) {
	s := &importProgress{
		Version: 1, Topics: map[string]topicProgress{}, Queues: map[string]string{},
		Parts: map[string]*partProgress{}, Paused: map[string]bool{},
	}
	var err error
	s.file, err = cli.LoadState(name, s, func() bool { return s.Version == 1 }, "the state of an import; to publish everything again, delete it")
	return s, err
}

func (s *importProgress) save() error { return s.file.Save(s) }

// unchanged reports an error if an nsqd has changed the data path since the import began, and
// records it at the beginning.
func (s *importProgress) unchanged(p *stockdata.Path) error {
	now := map[string]string{}
	for _, topic := range p.Topics {
		now[topic.Name] = topic.Queue.Fingerprint()
		for _, c := range topic.Channels {
			now[partKey(topic.Name, c.Name, false)] = c.Queue.Fingerprint()
		}
	}
	if len(s.Queues) == 0 && len(s.Parts) == 0 {
		s.Queues = now
		return nil
	}
	for name, print := range now {
		if s.Queues[name] != print {
			return fmt.Errorf("an nsqd has changed the queue %s since this import began: the rest cannot be distinguished from the published messages; to publish everything again, delete this file", name)
		}
	}
	for name := range s.Queues {
		if now[name] == "" {
			return fmt.Errorf("the queue %s has disappeared since this import began; to publish everything again, delete this file", name)
		}
	}
	return nil
}

// begin records a topic of the cluster, or reports that it is not the topic of an earlier run.
func (s *importProgress) begin(topic string, v api.ClusterView) error {
	i := slices.IndexFunc(v.Topics, func(x api.TopicView) bool { return x.Topic == topic })
	before, known := s.Topics[topic]
	switch {
	case i < 0:
		return fmt.Errorf("%w: %s", errNotListed, topic)
	case known && before.ID != v.Topics[i].ID:
		return fmt.Errorf("the topic %s was deleted since this import began, or this is another cluster; to publish everything again, delete this file", topic)
	case known:
		return nil
	}
	n, err := messagesOf(v.Topics[i])
	if err == nil {
		s.Topics[topic] = topicProgress{ID: v.Topics[i].ID, Messages: n}
	}
	return err
}

// growth is the number of messages that a topic has received since the import began.
func (s *importProgress) growth(topic string, v api.ClusterView) (int64, error) {
	before := s.Topics[topic]
	i := slices.IndexFunc(v.Topics, func(x api.TopicView) bool { return x.Topic == topic && x.ID == before.ID })
	if i < 0 {
		return 0, nil
	}
	n, err := messagesOf(v.Topics[i])
	return n - before.Messages, err
}

// messagesOf is the number of messages that a topic has had; errNotKnown if the leader of a partition did not
// report its own.
func messagesOf(x api.TopicView) (n int64, err error) {
	for _, p := range x.Partitions {
		if p.EndsUnknown {
			return 0, fmt.Errorf("%w of %s: the leader of partition %d does not answer", errNotKnown, x.Topic, p.Partition)
		}
		n += int64(p.CommittedSequence)
	}
	return n, nil
}

func (s *importProgress) part(p part) *partProgress {
	key := partKey(p.topic, p.channel, p.own)
	if s.Parts[key] == nil {
		s.Parts[key] = &partProgress{Position: p.queue.Start()}
	}
	return s.Parts[key]
}
