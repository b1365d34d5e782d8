package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
)

const (
	// nameGrace is how long after its lease a registration of another process may still be visible.
	nameGrace = 2 * time.Second
	// slowMetadata is the duration of a request from which on leases may have been suspended.
	slowMetadata = time.Second
)

// ErrNameTaken means that a running broker has this one's name.
var ErrNameTaken = errors.New("coordinator: another broker of this name runs")

// AwaitName waits until no running broker has this one's name, and returns ErrNameTaken if one renews its lease. The
// registration of an earlier run on this data path does not count.
func (s *Session) AwaitName(ctx context.Context) error {
	most := 2*time.Duration(s.ttl)*time.Second + nameGrace // twice: a new leader of the metadata restarts the lease
	since := time.Now()
	for said := false; ; said = true {
		asked := time.Now()
		try, cancel := context.WithTimeout(ctx, txn.RequestTimeout)
		other, err := s.otherRun(try)
		cancel()
		if time.Since(asked) >= slowMetadata {
			since = time.Now()
		}
		switch {
		case err != nil:
			return err
		case other == nil:
			return nil
		case time.Since(since) > most:
			return fmt.Errorf("%w: %s at %s; this process needs a --node-name of its own", ErrNameTaken, s.node.Name, other.RPCAddress)
		case !said:
			s.o.Log.WithField("address", other.RPCAddress).Warnf("%s is registered by another process: waiting for the end of its registration", s.node.Name)
		}
		select {
		case <-time.After(registerRetry):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrNameTaken, ctx.Err())
		}
	}
}

// otherRun is the registration under this name of a process with another data path; nil if there is none.
func (s *Session) otherRun(ctx context.Context) (*metadata.NodeState, error) {
	e, err := s.o.Store.Get(ctx, s.o.Keys.Live(s.node.Name))
	if errors.Is(err, metadata.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read own registration: %w", err)
	}
	n, err := metadata.DecodeNode(e)
	if err != nil {
		return nil, err
	}
	r := s.o.File.Record()
	if n.Disk == string(r.Disk) && !r.Doubted {
		return nil, nil
	}
	return &n, nil
}

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
