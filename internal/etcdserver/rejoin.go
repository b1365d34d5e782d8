package etcdserver

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// askTimeout bounds one question to one member.
	askTimeout = 2 * time.Second
	// changeTimeout bounds one attempt at a change of the membership.
	changeTimeout = 2 * time.Second
	// membershipRetry separates attempts at a change that etcd refuses for now
	// (it has just lost or gained somebody, or the learner is still behind).
	membershipRetry = 200 * time.Millisecond
	// appliedPoll separates looks at this member's own state, which etcd does not
	// announce.
	appliedPoll = 10 * time.Millisecond
	// maxMembersReply bounds what a stranger on a peer port can make us read.
	maxMembersReply = 1 << 20
)

// member is one line of what etcd answers at a peer address under /members.
type member struct {
	ID         uint64   `json:"id"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"` // empty until it has run once
	IsLearner  bool     `json:"isLearner"`
}

// admission is how a member without a directory comes into its cluster.
type admission uint8

const (
	admitNew     admission = iota // the cluster is being made: start as configured
	admitAdd                      // the cluster runs without this member
	admitReplace                  // this member ran before and lost its directory
	admitJoin                     // it was added already, and then died before it started
)

// Rejoin prepares the start of a member whose directory is gone. A member that
// voted must not come back empty under its old identity: it could deny votes it
// gave. So the old one is removed, a learner is added, and the options are
// returned with which to start it; call Promote afterwards. A founder's options
// come back as they are, when it knows that it is one (hearOthers); until then it
// waits for others. So do those of a member that has a directory, or is alone.
func Rejoin(ctx context.Context, o Options) (Options, error) {
	if Exists(o.Dir) || len(o.others()) == 0 {
		return o, nil
	}
	log := o.Log
	if log == nil {
		log = logrus.StandardLogger()
	}
	own, err := memberURL(o.InitialCluster, o.Name)
	if err != nil {
		return o, err
	}
	security, err := o.TLS.client()
	if err != nil {
		return o, err
	}
	members, err := o.hearOthers(ctx, security, log)
	if err != nil {
		return o, err
	}
	old, how := admit(members, own.String())
	if how == admitNew && isJoining(o.Dir) {
		return o, errors.New("etcdserver: this member was joining when it ended, and no other one answers now")
	}
	if how == admitNew {
		return o, nil
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: clientURLs(members, own.String()), TLS: security, DialTimeout: askTimeout, Logger: zap.NewNop()})
	if err != nil {
		return o, fmt.Errorf("etcdserver: rejoin: %w", err)
	}
	defer c.Close()
	if how == admitReplace {
		err = insist(ctx, log, func(ctx context.Context) error { _, err := c.MemberRemove(ctx, old.ID); return err })
		if err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
			return o, fmt.Errorf("etcdserver: remove the member that lost its directory: %w", err)
		}
	}
	if how != admitJoin {
		err = insist(ctx, log, func(ctx context.Context) error {
			_, err := c.MemberAddAsLearner(ctx, []string{own.String()})
			return err
		})
		if err != nil && !errors.Is(err, rpctypes.ErrPeerURLExist) && !errors.Is(err, rpctypes.ErrMemberExist) {
			return o, fmt.Errorf("etcdserver: add this member as a learner: %w", err)
		}
	}
	return o.joining(ctx, c, own.String())
}

// joining reads the membership from a majority, which knows under what id this
// member was added.
func (o Options) joining(ctx context.Context, c *clientv3.Client, peerURL string) (Options, error) {
	list, err := c.MemberList(ctx)
	if err != nil {
		return o, fmt.Errorf("etcdserver: read the members: %w", err)
	}
	var members []member
	for _, m := range list.Members {
		members = append(members, member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs})
		if slices.Contains(m.PeerURLs, peerURL) {
			o.joinAs = m.ID
		}
	}
	if o.joinAs == 0 {
		return o, fmt.Errorf("etcdserver: %s was added and is no member", peerURL)
	}
	o.Join = true
	o.InitialCluster = clusterOf(members, o.Name, peerURL)
	return o, nil
}

// admit decides from what the other members say; nil means that none answered.
func admit(members []member, peerURL string) (old member, how admission) {
	running := false
	listed := false
	for _, m := range members {
		if slices.Contains(m.PeerURLs, peerURL) {
			old, listed = m, true
		} else if len(m.ClientURLs) > 0 {
			running = true
		}
	}
	switch {
	case !running:
		return old, admitNew
	case !listed:
		return old, admitAdd
	case len(old.ClientURLs) > 0:
		return old, admitReplace
	case old.IsLearner:
		return old, admitJoin
	}
	return old, admitNew // a founding member that is late
}

// AskOthers reads a key as another member has it, without a majority: what it
// gives may be old. It is nil if the key is not there, or nobody answers before
// ctx ends.
func AskOthers(ctx context.Context, o Options, key string) ([]byte, error) {
	if o.InitialCluster == "" {
		return nil, nil
	}
	own, err := memberURL(o.InitialCluster, o.Name)
	if err != nil {
		return nil, err
	}
	security, err := o.TLS.client()
	if err != nil {
		return nil, err
	}
	urls := clientURLs(o.askOthers(ctx, security), own.String())
	if len(urls) == 0 {
		return nil, nil
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: urls, TLS: security, DialTimeout: askTimeout, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("etcdserver: ask the others: %w", err)
	}
	defer c.Close()
	resp, err := c.Get(ctx, key, clientv3.WithSerializable())
	if err != nil || len(resp.Kvs) == 0 {
		return nil, nil
	}
	return resp.Kvs[0].Value, nil
}

func ask(ctx context.Context, client *http.Client, peerURL string) ([]member, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(peerURL, "/")+"/members", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("etcdserver: %s: %s", peerURL, resp.Status)
	}
	var members []member
	err = json.NewDecoder(io.LimitReader(resp.Body, maxMembersReply)).Decode(&members)
	return members, err
}

func clientURLs(members []member, except string) (urls []string) {
	for _, m := range members {
		if !slices.Contains(m.PeerURLs, except) {
			urls = append(urls, m.ClientURLs...)
		}
	}
	return urls
}

// clusterOf writes the present membership, with this member, as an initial
// cluster.
func clusterOf(members []member, name, peerURL string) string {
	parts := []string{name + "=" + peerURL}
	for _, m := range members {
		if len(m.PeerURLs) > 0 && !slices.Contains(m.PeerURLs, peerURL) {
			parts = append(parts, m.Name+"="+m.PeerURLs[0])
		}
	}
	return strings.Join(parts, ",")
}

// Promote makes a learner that has caught up a voter, and waits until it has.
// For a voter it does nothing.
func (s *Server) Promote(ctx context.Context) error {
	if !s.etcd.Server.IsLearner() {
		return nil
	}
	var others []string
	for _, m := range s.etcd.Server.Cluster().Members() {
		if m.ID != s.etcd.Server.MemberID() {
			others = append(others, m.ClientURLs...)
		}
	}
	security, err := s.tls.client()
	if err != nil {
		return err
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: others, TLS: security, DialTimeout: askTimeout, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("etcdserver: promote: %w", err)
	}
	defer c.Close()
	err = insist(ctx, s.log, func(ctx context.Context) error { _, err := c.MemberPromote(ctx, s.MemberID()); return err })
	if err != nil && !errors.Is(err, rpctypes.ErrMemberNotLearner) {
		return fmt.Errorf("etcdserver: promote: %w", err)
	}
	return s.untilVoter(ctx)
}

// untilVoter waits until this member has applied its own promotion; before that
// it refuses clients.
func (s *Server) untilVoter(ctx context.Context) error {
	tick := time.NewTicker(appliedPoll)
	defer tick.Stop()
	for s.etcd.Server.IsLearner() {
		select {
		case <-tick.C:
		case <-s.etcd.Server.StopNotify():
			return ErrStopped
		case <-ctx.Done():
			return fmt.Errorf("etcdserver: promotion is not applied yet: %w", ctx.Err())
		}
	}
	return nil
}

// insist repeats a membership change while etcd says "not now", or nothing: etcd
// waits for ever for a change that was lost with its leader, so an attempt has a
// limit. One that was made after all shows as made at the next attempt.
func insist(ctx context.Context, log logrus.FieldLogger, change func(context.Context) error) error {
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
			log.WithError(err).Info("the metadata cluster does not change its members yet, asking again")
		}
		select {
		case <-time.After(membershipRetry):
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		}
	}
}

// notNow reports whether the same change may work later.
func notNow(err error) bool {
	for _, later := range []error{
		rpctypes.ErrUnhealthy, rpctypes.ErrMemberLearnerNotReady, rpctypes.ErrTooManyLearners, rpctypes.ErrNoLeader,
		rpctypes.ErrLeaderChanged, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, context.DeadlineExceeded,
	} {
		if errors.Is(err, later) {
			return true
		}
	}
	return false
}

// client gives what a client of the cluster needs; nil for plain text.
func (t TLS) client() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	c, err := t.transport().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("etcdserver: TLS files: %w", err)
	}
	return c, nil
}
