package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/raft/v3/raftpb"
)

// Crash ends the member without a message to the others.
func (s *Server) Crash() { s.etcd.Server.HardStop() }

// AddLearner writes a learner that does not run into this member's list of members, under an
// id of the test's choice. The cluster would accept one only after five quiet seconds.
func (s *Server) AddLearner(id uint64, peerURL string) {
	s.etcd.Server.Cluster().(*membership.RaftCluster).AddMember(&membership.Member{
		ID: types.ID(id), RaftAttributes: membership.RaftAttributes{PeerURLs: []string{peerURL}, IsLearner: true},
	}, membership.ApplyBoth)
}

// Patient has a member wait for the answers of others as long as a test may take: a member that
// stands still for some seconds is not absent.
func Patient(o *Options) { o.answerTimeout, o.promptAnswer = time.Minute, time.Minute }

// Campaign has a member stand for election at once.
func (s *Server) Campaign(ctx context.Context) error {
	return s.step(ctx, uint64(s.etcd.Server.MemberID()), raftpb.MsgTimeoutNow)
}

// HasLeader reports whether the member follows a leader, or leads.
func (s *Server) HasLeader() bool { return s.etcd.Server.Leader() != 0 }

// Settled returns the last entry that the member has stored, and whether the leader has nothing
// further to write on its own.
func (s *Server) Settled() (last uint64, done bool) {
	v := s.etcd.Server.ClusterVersion()
	return s.etcd.Server.AppliedIndex(), v != nil && v.String() == version.Cluster(version.Version)+".0"
}

// SmallQuota sets the size of the database in bytes, and how often it is checked.
func SmallQuota(o *Options, bytes int64, every time.Duration) { o.quota, o.quotaEvery = bytes, every }

// ExplainEnd returns the explanation of an error after which etcd has given up.
var ExplainEnd = explainEnd

// RetryChange repeats a change of the membership.
var RetryChange = retryChange

// FreeSpace makes room in the member's database, as its watch does when half of the quota is used.
func (s *Server) FreeSpace(ctx context.Context) error { return s.freeSpace(ctx) }

// MemberID is this member's id.
func (s *Server) MemberID() uint64 { return s.memberID() }

// The errors that only tests tell apart.
var (
	ErrDiskFull = errDiskFull
	ErrFiles    = errFiles
	ErrLogin    = errLogin
	ErrRefused  = errRefused
	ErrRemoved  = errRemoved
)
