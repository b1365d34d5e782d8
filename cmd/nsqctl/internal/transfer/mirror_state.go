package transfer

import (
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// mirrorProgress is the content of the state file of a mirror.
type mirrorProgress struct {
	Version int                     `json:"v"`
	Topics  map[string]*mirrorTopic `json:"topics"`
	file    cli.StateFile
}

// mirrorTopic is the progress of one topic. It counts only for these two topics: one that is deleted
// and created again has another id.
type mirrorTopic struct {
	SourceID   ident.TopicID     `json:"source_id"`
	TargetID   ident.TopicID     `json:"target_id"`
	Partitions map[int]copyState `json:"partitions"`
}

// loadMirror reads the state file; without one the mirror reads the target.
func loadMirror(name string) (*mirrorProgress, error) {
	s := &mirrorProgress{Version: 1, Topics: map[string]*mirrorTopic{}}
	var err error
	s.file, err = cli.LoadState(name, s, func() bool { return s.Version == 1 && s.Topics != nil },
		"the state of a mirror; without it a mirror reads its progress from the target, which takes longer")
	return s, err
}
