package guard_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi/consume"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
)

// TestARevocationEndsWaitingRequests: the loss of a right ends a poll and a stream of an HTTP consumer at
// once. Until the end of its wait, the poll would take a message from the other consumers.
func TestARevocationEndsWaitingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := users(t)
		cluster := edgetest.New()
		defer cluster.Close()
		sessions := consume.New(consume.Options{}, cluster, nil)
		defer sessions.Stop()
		h := httpapi.NSQD(httpapi.Options{Connection: config.Connection{MaxRdyCount: 10}, Messages: config.Messages{MsgTimeout: time.Minute, MaxMsgTimeout: time.Minute}}, httpapi.Backend{
			Publisher: cluster, Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Consumers: sessions, Log: quiet(),
			Guard: guard.New(guard.Options{Users: r, Log: quiet()}),
		})
		for n, revoke := range []func(name string) error{
			func(name string) error { return r.Delete(t.Context(), name) },
			func(name string) error { return r.Revoke(t.Context(), name, "t", access.Consume) },
			func(name string) error { _, err := r.Rotate(t.Context(), name); return err },
		} {
			name := []string{"deleted", "revoked", "rotated"}[n]
			token, err := r.Create(t.Context(), access.NewUser{Name: name})
			require.NoError(t, err)
			require.NoError(t, r.Grant(t.Context(), name, "t", access.Consume))
			ended := make(chan *httptest.ResponseRecorder, 2)
			for _, accept := range []string{httpJSON, httpStream} {
				target := "/v1/consume?topic=t&channel=" + name
				if accept == httpJSON {
					target += "&wait=1m"
				}
				q := httptest.NewRequest(http.MethodPost, target, nil)
				q.Header.Set("Authorization", "Bearer "+token)
				q.Header.Set("Accept", accept)
				go func() {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, q)
					ended <- w
				}()
			}
			synctest.Wait()
			require.Equal(t, 2, ready(cluster, name), "both wait for messages")
			began := time.Now()
			require.NoError(t, revoke(name))
			for range 2 {
				w := <-ended
				if w.Header().Get("Content-Type") == httpStream {
					require.Contains(t, w.Body.String(), "event: end\n")
					continue
				}
				require.Contains(t, []int{http.StatusForbidden, http.StatusUnauthorized}, w.Code)
			}
			require.Zero(t, time.Since(began), "neither the next check after five seconds ended them, nor the next sign of life")
		}
	})
}

const (
	httpJSON   = "application/json"
	httpStream = "text/event-stream"
)

// ready is the number of consumers of a channel of topic t that wait for messages.
func ready(cluster *edgetest.Cluster, channel string) (n int) {
	for _, topic := range cluster.Topics("t", channel, true) {
		for _, c := range topic.Channels {
			for _, client := range c.Clients {
				if client.ReadyCount > 0 {
					n++
				}
			}
		}
	}
	return n
}

// TestTheAuditNamesTheObject: an argument of any length does not push the topic, the user and the rights
// out of the entry.
func TestTheAuditNamesTheObject(t *testing.T) {
	r, root := users(t)
	g := guard.New(guard.Options{Users: r, Log: quiet()})
	cluster := edgetest.New()
	defer cluster.Close()
	h := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{
		Publisher: cluster, Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Log: quiet(), Users: r, Guard: g,
	})
	_, err := r.Create(t.Context(), access.NewUser{Name: "shop"})
	require.NoError(t, err)
	long := strings.Repeat("z", 2000)
	for query, want := range map[string]string{
		"/topic/delete?pad=" + long + "&topic=orders":                                                     "topic=orders&pad=zzz",
		"/channel/delete?" + strings.Repeat("a&", 600) + "topic=orders&channel=billing":                   "topic=orders&channel=billing&a&a",
		"/v1/acl/grant?topic=" + strings.Repeat("o", 2000) + "&rights=publish&user=shop":                  "user=shop&topic=ooo",
		"/v1/acl/grant?user=shop&topic=a&rights=" + strings.Repeat("publish,", 200) + "administer":        "user=shop&topic=a&rights=publish%2Cpublish",
		"/v1/user/create?name=mallory&admin=true&admin=" + strings.Repeat("false&admin=", 100) + "false":  "name=mallory&admin=true&name=mallory",
		"/v1/user/create?admin=" + strings.Repeat("0", 1000) + "&name=" + strings.Repeat("%6d", 10) + "x": "name=mmmmmmmmmmx&admin=000",
	} {
		before := len(g.Audit.Entries())
		q := httptest.NewRequest(http.MethodPost, query, nil)
		q.Header.Set("Authorization", "Bearer "+root)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		entries := g.Audit.Entries()[before:]
		require.Len(t, entries, 1)
		require.True(t, strings.HasPrefix(entries[0].Detail, want), entries[0].Detail)
		if strings.Contains(query, "publish,publish") {
			require.Equal(t, http.StatusBadRequest, w.Code, "the audit shows all rights that are granted")
		}
	}
}
