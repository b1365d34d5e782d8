package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMessageIDs: a put that comes again under its id is answered OK, and the answer says that it was
// there. An id names all messages of an /mpub.
func TestMessageIDs(t *testing.T) {
	s := newSite(t)
	publish := func(path, body string, ids ...string) *http.Response {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		for _, id := range ids {
			r.Header.Add("x-nsq-message-id", id)
		}
		w := httptest.NewRecorder()
		s.nsqd.ServeHTTP(w, r)
		return w.Result()
	}
	stored := func() uint64 { return s.cluster.Topics("t", "", false)[0].MessageCount }
	for i, x := range []struct {
		path, body, id string
		duplicate      string
		stored         uint64
	}{
		{"/pub?topic=t", "one", "order-1", "", 1},
		{"/pub?topic=t", "one", "order-1", "true", 1},
		{"/pub?topic=t&ttl=5s", "one", "order-1", "true", 1},
		{"/pub?topic=t", "one", "order-2", "", 2},
		{"/mpub?topic=t", "a\nb\n", "order-3", "", 4},
		{"/mpub?topic=t", "a\nb\n", "order-3", "true", 4},
		{"/mpub?topic=t", "a\na\n", "order-4", "", 6},
	} {
		r := publish(x.path, x.body, x.id)
		require.Equal(t, 200, r.StatusCode, i)
		require.Equal(t, x.duplicate, r.Header.Get("X-Nsq-Duplicate"), i)
		require.Equal(t, "OK", text(t, r))
		require.Equal(t, x.stored, stored(), i)
	}
	require.Empty(t, publish("/pub?topic=t", "one").Header.Get("X-Nsq-Duplicate"))
	for _, ids := range [][]string{{""}, {strings.Repeat("x", 65)}, {"a", "b"}, {"\xff"}} {
		for _, path := range []string{"/pub?topic=t", "/mpub?topic=t"} {
			r := publish(path, "one", ids...)
			require.Equal(t, 400, r.StatusCode)
			require.Contains(t, text(t, r), "INVALID_MESSAGE_ID")
		}
	}
	require.EqualValues(t, 7, stored())
}
