package etcdserver

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAdmit(t *testing.T) {
	const own = "http://a:1"
	running := member{ID: 2, PeerURLs: []string{"http://b:1"}, ClientURLs: []string{"http://b:2"}}
	silent := member{ID: 2, PeerURLs: []string{"http://b:1"}}
	self := member{ID: 1, PeerURLs: []string{own}}
	ran := member{ID: 1, PeerURLs: []string{own}, ClientURLs: []string{"http://a:2"}}
	learner := member{ID: 1, PeerURLs: []string{own}, IsLearner: true}
	for _, c := range []struct {
		what    string
		members []member
		want    admission
	}{
		{"nobody answered", nil, admitNew},
		{"the cluster is being founded", []member{silent, self}, admitNew},
		{"a founding member is late", []member{running, self}, admitNew},
		{"it ran before", []member{running, ran}, admitReplace},
		{"it was removed and not yet added", []member{running}, admitAdd},
		{"it was added and died before its start", []member{running, learner}, admitJoin},
	} {
		_, got := admit(c.members, own)
		require.Equal(t, c.want, got, c.what)
	}
}
