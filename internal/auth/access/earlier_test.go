package access

import (
	"testing"

	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
)

// TestATokenOfAnEarlierBuild: it is refused, and the log says whose it is. A new token is taken.
func TestATokenOfAnEarlierBuild(t *testing.T) {
	log, seen := logtest.NewNullLogger()
	r := NewRegistry(Options{Keys: metadata.Keys{Cluster: "c"}, Log: log})
	token, id, hash := issue("shop")
	for _, u := range []*User{{Name: "shop", TokenID: id, Hash: "$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"}, {Name: "cert", Certificate: true}} {
		r.apply(metadata.Change{Puts: []metadata.Entry{{Key: r.o.Keys.User(u.Name), Value: u.encode()}}})
	}
	_, err := r.Verify(token)
	require.ErrorIs(t, err, ErrBadToken)
	require.Len(t, seen.AllEntries(), 1)
	require.Contains(t, seen.LastEntry().Message, "nsqctl user rotate")
	require.Equal(t, "shop", seen.LastEntry().Data["user"])
	r.apply(metadata.Change{Puts: []metadata.Entry{{Key: r.o.Keys.User("shop"), Value: (&User{Name: "shop", TokenID: id, Hash: hash}).encode()}}})
	got, err := r.Verify(token)
	require.NoError(t, err)
	require.Equal(t, "shop", got.Name)
	require.Len(t, seen.AllEntries(), 1)
}
