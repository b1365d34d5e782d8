package etcdserver

import (
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
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

// SmallQuota sets the size of the database in bytes, and how often it is checked.
func SmallQuota(o *Options, bytes int64, every time.Duration) { o.quota, o.quotaEvery = bytes, every }

// ExplainEnd returns the explanation of an error after which etcd has given up.
var ExplainEnd = explainEnd

// RetryChange repeats a change of the membership.
var RetryChange = retryChange
