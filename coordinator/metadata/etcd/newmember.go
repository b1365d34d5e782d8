package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

const (
	askTimeout    = 2 * time.Second // timeout of one query to one member
	changeTimeout = 2 * time.Second // of one attempt to change the membership
	// membershipRetry is the pause after a change that etcd refuses temporarily, because a member was just added or
	// removed, or the learner is still behind.
	membershipRetry = 200 * time.Millisecond
	appliedPoll     = 10 * time.Millisecond   // interval for polling this member's own state, whose changes etcd does not announce
	entryEvery      = time.Second             // interval while a member is not ready
	noSuchKey       = "/lockstep/no-such-key" // is never written
	maxMembersReply = 1 << 20                 // the number of bytes read from another process's answer
)

// member is one entry of etcd's answer to /members at a peer address.
type member struct {
	ID         uint64   `json:"id"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"` // empty until it has run once
}

// rejoining is a member without a log that joins its running cluster again. All its queries and changes require a
// majority: the list of a single member may be as old as the cluster.
type rejoining struct {
	Options
	client  *clientv3.Client
	peerURL string
}

// newIdentity removes the member of this name, and the one at this address, and adds a learner there. It never uses an
// existing identity: the member with it may have voted, even if it has never published itself.
func (r *rejoining) newIdentity(ctx context.Context) (cluster, id uint64, err error) {
	if err := r.removeMoved(ctx); err != nil {
		return 0, 0, err
	}
	_, old, err := r.listed(ctx)
	if err != nil {
		return 0, 0, err
	}
	if old != nil {
		if err := r.remove(ctx, old.ID); err != nil {
			return 0, 0, fmt.Errorf("etcd: remove the member that lost its directory: %w", err)
		}
	}
	err = retryChange(ctx, r.Log, func(ctx context.Context) error {
		_, err := r.client.MemberAddAsLearner(ctx, []string{r.peerURL})
		return err
	})
	if err != nil && !errors.Is(err, rpctypes.ErrPeerURLExist) && !errors.Is(err, rpctypes.ErrMemberExist) {
		return 0, 0, fmt.Errorf("etcd: add this member as a learner: %w", err)
	}
	cluster, added, err := r.listed(ctx)
	if err != nil {
		return 0, 0, err
	}
	if added == nil {
		return 0, 0, fmt.Errorf("etcd: %s was added but is not a member", r.peerURL)
	}
	return cluster, added.ID, nil
}

// remove removes a member that may already be gone.
func (r *rejoining) remove(ctx context.Context, id uint64) error {
	err := retryChange(ctx, r.Log, func(ctx context.Context) error { _, err := r.client.MemberRemove(ctx, id); return err })
	if errors.Is(err, rpctypes.ErrMemberNotFound) {
		return nil
	}
	return err
}

// dial returns a client of members of the cluster.
func dial(endpoints []string, security *tls.Config) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: security, DialTimeout: askTimeout, Logger: zap.NewNop()})
}

// removeMoved removes the member of this name at another address, unless a process answers there: then two brokers have
// the same name. The entry of a dead member would prevent etcd from adding a member, and would enlarge the majority.
func (r *rejoining) removeMoved(ctx context.Context) error {
	list, err := r.members(ctx)
	if err != nil {
		return err
	}
	for _, m := range list.Members {
		if m.Name != r.Name || slices.Contains(m.PeerURLs, r.peerURL) {
			continue
		}
		client, done := r.Options.client(r.answerTimeout)
		for _, address := range m.PeerURLs {
			if _, err = askMembers(ctx, client, address); err == nil {
				break
			}
		}
		done()
		if err == nil && len(m.PeerURLs) > 0 {
			return fmt.Errorf("%w: %s runs at %v already: this broker needs a --node-name of its own", ErrOptions, r.Name, m.PeerURLs)
		}
		if err := r.remove(ctx, m.ID); err != nil {
			return fmt.Errorf("etcd: remove the member that was at %v: %w", m.PeerURLs, err)
		}
	}
	return nil
}

func (r *rejoining) members(ctx context.Context) (list *clientv3.MemberListResponse, err error) {
	err = retryChange(ctx, r.Log, func(ctx context.Context) (err error) { list, err = r.client.MemberList(ctx); return err })
	if err != nil {
		return nil, fmt.Errorf("etcd: read the members: %w", err)
	}
	return list, nil
}

// listed returns the member at this address; nil if there is none.
func (r *rejoining) listed(ctx context.Context) (cluster uint64, m *etcdserverpb.Member, err error) {
	list, err := r.members(ctx)
	if err != nil {
		return 0, nil, err
	}
	if at := slices.IndexFunc(list.Members, func(m *etcdserverpb.Member) bool { return slices.Contains(m.PeerURLs, r.peerURL) }); at >= 0 {
		m = list.Members[at]
	}
	return list.Header.ClusterId, m, nil
}

// Promote makes a learner that has caught up a voter, and waits until it is one. For a voter it does nothing.
func (s *Server) Promote(ctx context.Context) error {
	if !s.etcd.Server.IsLearner() {
		return nil
	}
	c, err := dial(s.otherClientURLs(), s.options.clientTLS())
	if err != nil {
		return fmt.Errorf("etcd: promote: %w", err)
	}
	defer c.Close()
	err = retryChange(ctx, s.log, func(ctx context.Context) error { _, err := c.MemberPromote(ctx, s.memberID()); return err })
	if err != nil && !errors.Is(err, rpctypes.ErrMemberNotLearner) {
		return fmt.Errorf("etcd: promote: %w", err)
	}
	return s.untilVoter(ctx)
}

// otherClientURLs are the known client URLs of all other members.
func (s *Server) otherClientURLs() (urls []string) {
	for _, m := range s.etcd.Server.Cluster().Members() {
		if m.ID != s.etcd.Server.MemberID() {
			urls = append(urls, m.ClientURLs...)
		}
	}
	return urls
}

// requestEntries makes the other members commit an entry without effect each second, until ctx ends. A member that has
// received a snapshot counts what it has applied only from the next entry on. If the snapshot is more than 5,000
// entries ahead, etcd refuses the member's proposals until then, including its own name, without which it is not ready;
// in an idle cluster that took up to a minute.
func (s *Server) requestEntries(ctx context.Context) {
	for concurrency.Sleep(ctx, entryEvery) {
		others := s.otherClientURLs()
		if len(others) == 0 {
			continue // the only member, or nothing received yet
		}
		c, err := dial(others, s.options.clientTLS())
		if err != nil {
			continue // Wait has the reason why there is no majority
		}
		try, cancel := context.WithTimeout(ctx, changeTimeout)
		_, _ = c.Delete(try, noSuchKey) // fails without a majority
		cancel()
		_ = c.Close()
	}
}

// PublishAddress sends this member's address to the others, if its directory has moved to another address. Otherwise
// they would send it no snapshot, and mistake the process at the old address for it.
func (s *Server) PublishAddress(ctx context.Context) error {
	_, peer, err := s.options.urls()
	if err != nil {
		return err
	}
	here := []string{peer.advertise.String()}
	if own := s.etcd.Server.Cluster().Member(s.etcd.Server.MemberID()); own == nil || slices.Equal(own.PeerURLs, here) {
		return nil
	}
	security := s.options.clientTLS()
	if s.port != nil { // the socket has no TLS
		security = nil
	}
	c, err := dial([]string{s.Local()}, security)
	if err != nil {
		return fmt.Errorf("etcd: publish the address: %w", err)
	}
	defer c.Close()
	err = retryChange(ctx, s.log, func(ctx context.Context) error { _, err := c.MemberUpdate(ctx, s.memberID(), here); return err })
	if err != nil {
		return fmt.Errorf("etcd: publish that this member is at %s: %w", here[0], err)
	}
	return nil
}

// untilVoter waits until this member has applied its own promotion; before that it refuses clients.
func (s *Server) untilVoter(ctx context.Context) error {
	tick := time.NewTicker(appliedPoll)
	defer tick.Stop()
	for s.etcd.Server.IsLearner() {
		select {
		case <-tick.C:
		case <-s.etcd.Server.StopNotify():
			return ErrStopped
		case <-ctx.Done():
			return fmt.Errorf("etcd: promotion is not applied yet: %w", ctx.Err())
		}
	}
	return nil
}

// retryChange repeats a membership change while etcd refuses it temporarily or does not answer: etcd waits forever for
// a change that was lost with its leader, so each attempt has a timeout. If an attempt without an answer has succeeded,
// the next one finds the change done.
func retryChange(ctx context.Context, log logrus.FieldLogger, change func(context.Context) error) error {
	said := ""
	for {
		try, cancel := context.WithTimeout(ctx, changeTimeout)
		err := change(try)
		cancel()
		if !notNow(err) || ctx.Err() != nil {
			return err
		}
		if said != err.Error() {
			said = err.Error()
			log.WithError(err).Info("cannot change the members of the metadata cluster yet, trying again")
		}
		if !concurrency.Sleep(ctx, membershipRetry) {
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
	}
}

// notNow reports whether etcd refused a change that may succeed later.
func notNow(err error) bool {
	for _, later := range []error{
		rpctypes.ErrUnhealthy, rpctypes.ErrMemberLearnerNotReady, rpctypes.ErrTooManyLearners, rpctypes.ErrNoLeader,
		rpctypes.ErrLeaderChanged, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, context.DeadlineExceeded,
	} {
		if errors.Is(err, later) {
			return true
		}
	}
	return unreachable(err)
}

// unreachable reports whether a request reached no member; there may be no majority for now.
func unreachable(err error) bool {
	if known, is := errors.AsType[rpctypes.EtcdError](err); is {
		return known.Code() == codes.Unavailable
	}
	return err != nil && status.Code(err) == codes.Unavailable
}
