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
	"go.etcd.io/etcd/api/v3/etcdserverpb"
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
}

// Rejoin prepares the start of a member whose directory is gone. A member that
// voted must not come back empty under its old identity: it could deny votes it
// gave. So who ran at its address is removed, a learner is added, and the
// directory is made of a member that was added and has heard nothing yet
// (makeMember): joined says so; call Promote after Start. A founder has nothing to
// prepare, when it knows that it is one (hearOthers); until then it waits for
// others. Nor has a member that has a directory, or is alone.
func Rejoin(ctx context.Context, o Options) (joined bool, err error) {
	if Exists(o.Dir) || len(o.others()) == 0 {
		return false, nil
	}
	log := o.Log
	if log == nil {
		log = logrus.StandardLogger()
	}
	own, err := memberURL(o.InitialCluster, o.Name)
	if err != nil {
		return false, err
	}
	security, err := o.TLS.client()
	if err != nil {
		return false, err
	}
	heard, err := o.hearOthers(ctx, own.String(), security, log)
	if err != nil || !runs(heard, own.String()) {
		return false, err
	}
	c, err := dial(clientURLs(heard, own.String()), security)
	if err != nil {
		return false, fmt.Errorf("etcdserver: rejoin: %w", err)
	}
	defer c.Close()
	r := rejoining{client: c, name: o.Name, peerURL: own.String(), security: security, log: log}
	cluster, id, err := r.newIdentity(ctx)
	if err != nil || id == 0 {
		return false, err
	}
	return true, makeMember(o.Dir, cluster, id)
}

// runs reports whether a member at another address has run once, so that there is
// a cluster.
func runs(members []member, peerURL string) bool { return len(clientURLs(members, peerURL)) > 0 }

// rejoining is a member without a directory in a cluster that runs. All that it
// asks and changes goes through a majority: the list that one member has may be as
// old as the cluster.
type rejoining struct {
	client        *clientv3.Client
	name, peerURL string
	security      *tls.Config
	log           logrus.FieldLogger
}

// newIdentity removes the member at this address and adds a learner there. An
// identity that it finds is used only by a founder that is late, id 0: one that
// was added may have run, even if it did not come to say so.
func (r *rejoining) newIdentity(ctx context.Context) (cluster, id uint64, err error) {
	if err := r.removeMoved(ctx); err != nil {
		return 0, 0, err
	}
	_, old, err := r.listed(ctx)
	if err != nil {
		return 0, 0, err
	}
	if old != nil && len(old.ClientURLs) == 0 && !old.IsLearner {
		return 0, 0, nil
	}
	if old != nil {
		err = insist(ctx, r.log, func(ctx context.Context) error { _, err := r.client.MemberRemove(ctx, old.ID); return err })
		if err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
			return 0, 0, fmt.Errorf("etcdserver: remove the member that lost its directory: %w", err)
		}
	}
	err = insist(ctx, r.log, func(ctx context.Context) error {
		_, err := r.client.MemberAddAsLearner(ctx, []string{r.peerURL})
		return err
	})
	if err != nil && !errors.Is(err, rpctypes.ErrPeerURLExist) && !errors.Is(err, rpctypes.ErrMemberExist) {
		return 0, 0, fmt.Errorf("etcdserver: add this member as a learner: %w", err)
	}
	cluster, added, err := r.listed(ctx)
	if err != nil {
		return 0, 0, err
	}
	if added == nil {
		return 0, 0, fmt.Errorf("etcdserver: %s was added and is no member", r.peerURL)
	}
	return cluster, added.ID, nil
}

// dial makes a client of members of the cluster.
func dial(endpoints []string, security *tls.Config) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: security, DialTimeout: askTimeout, Logger: zap.NewNop()})
}

// dial is the same with the server's own certificates.
func (s *Server) dial(endpoints []string) (*clientv3.Client, error) {
	security, err := s.tls.client()
	if err != nil {
		return nil, err
	}
	return dial(endpoints, security)
}

// removeMoved removes who had this name at another address, where nobody is any
// more: dead, it would keep etcd from adding a member, and count for a majority. If
// somebody answers there, two brokers were given one name.
func (r *rejoining) removeMoved(ctx context.Context) error {
	list, err := r.members(ctx)
	if err != nil {
		return err
	}
	for _, m := range list.Members {
		if m.Name != r.name || slices.Contains(m.PeerURLs, r.peerURL) {
			continue
		}
		transport := &http.Transport{TLSClientConfig: r.security}
		for _, address := range m.PeerURLs {
			if _, err = ask(ctx, &http.Client{Transport: transport, Timeout: askTimeout}, address); err == nil {
				break
			}
		}
		transport.CloseIdleConnections()
		if err == nil && len(m.PeerURLs) > 0 {
			return fmt.Errorf("%w: %s runs at %v already: this broker needs a name of its own", ErrOptions, r.name, m.PeerURLs)
		}
		err = insist(ctx, r.log, func(ctx context.Context) error { _, err := r.client.MemberRemove(ctx, m.ID); return err })
		if err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
			return fmt.Errorf("etcdserver: remove the member that was at %v: %w", m.PeerURLs, err)
		}
	}
	return nil
}

func (r *rejoining) members(ctx context.Context) (list *clientv3.MemberListResponse, err error) {
	err = insist(ctx, r.log, func(ctx context.Context) (err error) { list, err = r.client.MemberList(ctx); return err })
	if err != nil {
		return nil, fmt.Errorf("etcdserver: read the members: %w", err)
	}
	return list, nil
}

// listed reads who is the member at this address; nil if nobody is.
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
	c, err := dial(urls, security)
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
	c, err := s.dial(others)
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

// TellAddress tells the others where this member is, if it came to another address
// with its directory: they would send it no snapshot, and take who comes to the old
// one for it.
func (s *Server) TellAddress(ctx context.Context) error {
	_, peer, err := s.options.urls()
	if err != nil {
		return err
	}
	here := []string{peer.advertise.String()}
	if own := s.etcd.Server.Cluster().Member(s.etcd.Server.MemberID()); own == nil || slices.Equal(own.PeerURLs, here) {
		return nil
	}
	c, err := s.dial(s.Endpoints())
	if err != nil {
		return fmt.Errorf("etcdserver: tell the address: %w", err)
	}
	defer c.Close()
	err = insist(ctx, s.log, func(ctx context.Context) error { _, err := c.MemberUpdate(ctx, s.MemberID(), here); return err })
	if err != nil {
		return fmt.Errorf("etcdserver: tell the others that this member is at %s: %w", here[0], err)
	}
	return nil
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
