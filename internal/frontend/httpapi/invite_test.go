package httpapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/auth/admission"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
)

// TestInvite: a broker is invited for a time, listed, and withdrawn. An answer says whether anything was done.
func TestInvite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetOutput(io.Discard)
		brokers := func(o admission.Options) (*admission.Registry, func(method, query string) (int, string)) {
			o.Keys, o.Log = metadata.Keys{Cluster: "c"}, log
			r := admission.New(o)
			handler := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Admission: r, Log: log})
			return r, func(method, query string) (int, string) {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest(method, "/v1/cluster/invite"+query, nil))
				return w.Code, w.Body.String()
			}
		}
		follow := func(r *admission.Registry, store metadata.Store) {
			ctx, cancel := context.WithCancel(t.Context())
			go r.Watch(ctx, store)
			t.Cleanup(func() { cancel(); _ = store.Close(); synctest.Wait() })
			synctest.Wait()
		}
		r, ask := brokers(admission.Options{})
		status, said := ask(http.MethodPost, "?node=n4")
		require.Equal(t, http.StatusServiceUnavailable, status, said)
		follow(r, metadatatest.NewMemory())
		status, said = ask(http.MethodPost, "?node=n4")
		require.Equal(t, http.StatusOK, status, said)
		var made httpapi.Invitation
		require.NoError(t, json.Unmarshal([]byte(said), &made))
		require.Equal(t, time.Hour, time.Until(made.Until))
		status, said = ask(http.MethodPost, "?node=n3&for=30m")
		require.Equal(t, http.StatusOK, status, said)
		synctest.Wait()
		var open httpapi.InvitationsView
		status, said = ask(http.MethodGet, "")
		require.Equal(t, http.StatusOK, status, said)
		require.NoError(t, json.Unmarshal([]byte(said), &open))
		require.Equal(t, []string{"n3", "n4"}, []string{open.Invitations[0].Node, open.Invitations[1].Node})
		status, said = ask(http.MethodPost, "?node=n4&withdraw=true")
		require.Equal(t, http.StatusOK, status, said)
		require.NotContains(t, said, "until")
		time.Sleep(30 * time.Minute)
		_, said = ask(http.MethodGet, "")
		require.JSONEq(t, `{"invitations":[]}`, said)
		for query, want := range map[string]string{
			"": `\"\" is not the --node-name`, "?node=a%2Fb": "is not the --node-name", "?node=n4&for=60": "such as 1h", "?node=n4&for=-1h": "at most", "?node=n4&for=200h": "at most 168h",
		} {
			status, said = ask(http.MethodPost, query)
			require.Equal(t, http.StatusBadRequest, status, said)
			require.Contains(t, said, want)
		}

		_, ask = brokers(admission.Options{NotNeeded: "no invitation is needed"})
		status, said = ask(http.MethodPost, "?node=n4")
		require.Equal(t, http.StatusBadRequest, status, said)
		require.Contains(t, said, "no invitation is needed")

		r, ask = brokers(admission.Options{})
		follow(r, silentMeta{Store: metadatatest.NewMemory()})
		status, said = ask(http.MethodPost, "?node=n4")
		require.Equal(t, http.StatusGatewayTimeout, status, said)
		require.Contains(t, said, "may have been made")
	})
}
