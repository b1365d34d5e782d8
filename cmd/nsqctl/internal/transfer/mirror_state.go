package transfer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/copier"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// mirrorProgress is the content of the state file of a mirror.
type mirrorProgress struct {
	Version int                     `json:"v"`
	Topics  map[string]*mirrorTopic `json:"topics"`
	file    string
	savedAt time.Time
}

// mirrorTopic is the progress of one topic. It counts only for these two topics: one that is deleted
// and created again has another id.
type mirrorTopic struct {
	SourceID   ident.TopicID        `json:"source_id"`
	TargetID   ident.TopicID        `json:"target_id"`
	Partitions map[int]copier.State `json:"partitions"`
}

// loadMirror reads the state file; without one the mirror reads the target.
func loadMirror(file string) (*mirrorProgress, error) {
	s := &mirrorProgress{Version: 1, file: file, Topics: map[string]*mirrorTopic{}}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, s); err != nil || s.Version != 1 || s.Topics == nil {
		return nil, fmt.Errorf("%s is not the state of a mirror; without it a mirror reads its progress from the target, which takes longer", file)
	}
	return s, nil
}

// save replaces the state file: after a crash it has the old or the new content.
func (s *mirrorProgress) save() error {
	s.savedAt = time.Now()
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return cli.ReplaceFile(s.file, text)
}
