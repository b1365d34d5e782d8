package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
)

// ErrTooOld means that the cluster uses features that this build does not have: all its brokers were newer once.
var ErrTooOld = errors.New("coordinator: this build is too old for the cluster")

// CheckLevel returns ErrTooOld if the cluster's feature level is above this build's.
func (s *Session) CheckLevel(ctx context.Context) error {
	e, err := s.o.Store.Get(ctx, s.o.Keys.Config())
	if errors.Is(err, metadata.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the feature level: %w", err)
	}
	c, err := metadata.DecodeCluster(e)
	if err == nil && c.Level > s.node.Level {
		err = fmt.Errorf("%w: it has feature level %d, the cluster %d", ErrTooOld, s.node.Level, c.Level)
	}
	return err
}
