package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
)

// silentMeta is metadata whose answers to transactions are lost.
type silentMeta struct {
	metadata.Store
	stores bool // the transaction happens nevertheless
}

func (s silentMeta) Txn(ctx context.Context, compare []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	if s.stores {
		_, _, _ = s.Store.Txn(ctx, compare, puts)
	}
	return false, 0, fmt.Errorf("%w: no answer", metadata.ErrUnknown)
}

// TestAChangeOfUsersInDoubt: a change that may have been made is answered with 504 and says so, never as a
// fault of the broker; before the users are read it is 503, and nothing is done.
func TestAChangeOfUsersInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetOutput(io.Discard)
		users := access.NewRegistry(access.Options{Keys: metadata.Keys{Cluster: "c"}, First: []byte("secret"), Log: log})
		handler := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Users: users, Guard: guard.New(guard.Options{Users: users, Log: log}), Log: log})
		create := func(name string) (int, string) {
			r := httptest.NewRequest(http.MethodPost, "/v1/user/create?admin=true&name="+name, nil)
			r.RemoteAddr, r.Host = "127.0.0.1:1", "127.0.0.1"
			r.Header.Set("Authorization", "Bearer secret")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w.Code, w.Body.String()
		}
		status, said := create("early")
		require.Equal(t, http.StatusServiceUnavailable, status, said)

		store := metadatatest.NewMemory()
		ctx, cancel := context.WithCancel(t.Context())
		var watch sync.WaitGroup
		watch.Go(func() { users.Watch(ctx, silentMeta{Store: store, stores: true}) })
		t.Cleanup(func() {
			cancel()
			watch.Wait()
			_ = store.Close()
		})
		synctest.Wait()
		require.NotNil(t, users.Policy())
		status, said = create("root")
		require.Equal(t, http.StatusGatewayTimeout, status, said)
		require.Contains(t, said, "may have been made")
		require.NotContains(t, said, "token")
		synctest.Wait()
		require.NotNil(t, users.Policy().User("root"))
	})
}
