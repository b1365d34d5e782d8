package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// joiningFile marks the directory of a member whose identity is not verified yet.
const joiningFile = "joining"

func isJoining(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, joiningFile))
	return err == nil
}

// startAs starts the member. One that joins takes its id from the list of
// members that the first other one gives, and that one may have slept since the
// old member at this address was removed: with the old id this one would be
// turned away for ever, and could deny what the old one promised. Then it is
// ended at once and starts again, until it is told the present list. A minority
// at most can be that old, so no election is won in between.
func (o Options) startAs(ctx context.Context, cfg *embed.Config) (*embed.Etcd, error) {
	if o.joinAs == 0 {
		return startMember(cfg)
	}
	mark := filepath.Join(o.Dir, joiningFile)
	for {
		if err := os.RemoveAll(filepath.Join(o.Dir, "member")); err != nil {
			return nil, err
		}
		if err := os.WriteFile(mark, nil, 0o600); err != nil {
			return nil, err
		}
		e, err := startMember(cfg)
		if err == nil && uint64(e.Server.MemberID()) == o.joinAs {
			return e, os.Remove(mark)
		}
		if err == nil {
			e.Close()
			err = errors.New("another member has an old list of members")
		}
		o.Log.WithError(err).Info("the metadata member cannot join yet, trying again")
		select {
		case <-time.After(membershipRetry):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
	}
}
