package guard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/authd"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
)

// moody is an auth service whose answers hold for a minute, or that fails.
type moody struct {
	asked atomic.Int32
	fails atomic.Pointer[error]
	hangs atomic.Bool
}

func (m *moody) Query(ctx context.Context, _ authd.Request) (*authd.State, error) {
	m.asked.Add(1)
	if m.hangs.Load() {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Second):
			return nil, errors.New("timeout")
		}
	}
	if err := m.fails.Load(); err != nil {
		return nil, *err
	}
	return authd.Parse([]byte(permits), time.Now())
}

// TestAnOutageOfTheAuthService: without a usable answer the last one holds, for each connection and request with the same
// credentials, and no operation waits long for it. New logins fail as the service's failure. It is reported, and
// ends with the next usable answer. A denial ends rights at once.
func TestAnOutageOfTheAuthService(t *testing.T) {
	for _, mood := range []error{fmt.Errorf("%w: status 500", authd.ErrInvalidAnswer), errors.New("connection refused"), nil} {
		synctest.Test(t, func(t *testing.T) {
			m := &moody{}
			fail := func(err error) {
				m.hangs.Store(err == nil)
				m.fails.Store(&err)
			}
			g := guard.New(guard.Options{External: m, Log: quiet()})
			need := guard.Need{Right: access.Consume, Topic: "t", Channel: "c"}
			login := func(secret string) *guard.Session {
				s, err := g.Login(t.Context(), from("192.0.2.1", secret))
				require.NoError(t, err)
				return s
			}
			first, second := login("known"), login("known")
			require.EqualValues(t, 1, m.asked.Load(), "one answer for both")
			ctx, end := second.While(t.Context(), need)
			defer end()
			fail(mood)
			require.Zero(t, g.Unanswered())
			time.Sleep(time.Minute + 10*time.Second)
			require.NoError(t, first.Allow(t.Context(), need))
			for range 100 {
				began := time.Now()
				require.NoError(t, first.Allow(t.Context(), need))
				require.LessOrEqual(t, time.Since(began), time.Second)
				login("known")
				time.Sleep(5 * time.Second)
			}
			require.NoError(t, ctx.Err())
			require.Less(t, m.asked.Load(), int32(30))
			require.Positive(t, g.Unanswered())
			_, err := g.Login(t.Context(), from("192.0.2.1", "new"))
			require.ErrorIs(t, err, guard.ErrAuthService)
			require.False(t, guard.IsLoss(err))

			m.hangs.Store(false)
			m.fails.Store(nil)
			time.Sleep(time.Minute + 5*time.Second)
			require.Zero(t, g.Unanswered())
			require.NoError(t, ctx.Err())

			fail(fmt.Errorf("%w: status 403", authd.ErrDenied))
			time.Sleep(time.Minute + 5*time.Second)
			require.ErrorIs(t, context.Cause(ctx), guard.ErrBadLogin)
			require.ErrorIs(t, first.Allow(t.Context(), need), guard.ErrBadLogin)
			require.Zero(t, g.Unanswered(), "a denial is an answer")
			m.fails.Store(nil)
			require.NoError(t, login("known").Allow(t.Context(), need), "a new login is judged again")
			require.NoError(t, first.Allow(t.Context(), need))

			fail(mood)
			time.Sleep(time.Minute + guard.AnswerHolds)
			err = first.Allow(t.Context(), need)
			require.ErrorIs(t, err, guard.ErrUnanswered)
			require.ErrorIs(t, err, guard.ErrAuthService)
			require.True(t, guard.IsLoss(err), "it does not hold for ever")
			time.Sleep(10 * time.Minute)
			require.Zero(t, g.Unanswered(), "nobody asks")
		})
	}
}

// TestAnOutageOverHTTP: a request with known credentials is served, one with others is told to come again.
func TestAnOutageOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moody{}
		cluster := edgetest.New()
		defer cluster.Close()
		h := httpapi.NSQD(httpapi.Options{Messages: config.Messages{MaxMsgSize: 1 << 10, MaxBodySize: 1 << 10}}, httpapi.Backend{
			Publisher: cluster, Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Log: quiet(),
			Guard: guard.New(guard.Options{External: m, Log: quiet()}),
		})
		publish := func(secret string) int {
			r := httptest.NewRequest(http.MethodPost, "/pub?topic=t", http.NoBody)
			r.Header.Set("Authorization", "Bearer "+secret)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		const noMessage = http.StatusBadRequest // admitted
		require.Equal(t, noMessage, publish("known"))
		for _, err := range []error{authd.ErrInvalidAnswer, errors.New("connection refused")} {
			m.fails.Store(&err)
			time.Sleep(2 * time.Minute)
			require.Equal(t, noMessage, publish("known"))
			require.Equal(t, http.StatusServiceUnavailable, publish("new"))
		}
		denied := authd.ErrDenied
		m.fails.Store(&denied)
		time.Sleep(2 * time.Minute)
		require.Equal(t, http.StatusUnauthorized, publish("known"))
		require.Equal(t, http.StatusUnauthorized, publish("new"))
	})
}
