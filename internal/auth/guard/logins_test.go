package guard_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/authd"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
)

// permits is an answer that holds for a minute.
const permits = `{"ttl":60,"identity":"me","authorizations":[{"topic":".*","channels":[".*"],"permissions":["publish","subscribe"]}]}`

// slowService is an auth service that takes a tenth of a second, and knows the secrets that begin with "good".
type slowService struct{ asked, open, most atomic.Int32 }

func (s *slowService) Query(_ context.Context, r authd.Request) (*authd.State, error) {
	s.asked.Add(1)
	open := s.open.Add(1)
	defer s.open.Add(-1)
	s.most.Store(max(s.most.Load(), open))
	time.Sleep(100 * time.Millisecond)
	if len(r.Secret) < 4 || r.Secret[:4] != "good" {
		return nil, fmt.Errorf("%w: status 403", authd.ErrDenied)
	}
	return authd.Parse([]byte(permits), time.Now())
}

// TestAValidTokenIsNeverRefused: not for the bad logins of its address, and not because many valid ones
// come at the same time to a broker that has just started.
func TestAValidTokenIsNeverRefused(t *testing.T) {
	r, root := users(t)
	tokens := []string{root}
	for n := range 20 {
		token, err := r.Create(t.Context(), access.NewUser{Name: fmt.Sprint("u", n)})
		require.NoError(t, err)
		tokens = append(tokens, token)
	}
	for _, g := range []*guard.Guard{
		guard.New(guard.Options{Users: r, Log: quiet()}),
		guard.New(guard.Options{Users: r, Log: quiet(), External: &slowService{}}),
	} {
		var bad sync.WaitGroup
		for n := range 200 {
			bad.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				cancel() // an answer of the auth service is not waited for
				_, _ = g.Login(ctx, from("192.0.2.1", fmt.Sprintf("root.%043d", n)))
			})
		}
		bad.Wait()
		var logins sync.WaitGroup
		var refused atomic.Int32
		for n := range 200 {
			logins.Go(func() {
				if s, err := g.Login(t.Context(), from("192.0.2.1", tokens[n%len(tokens)])); err != nil || !s.LoggedIn() {
					refused.Add(1)
				}
			})
		}
		logins.Wait()
		require.Zero(t, refused.Load(), "of 200 valid logins")
	}
}

// TestManyGoodLoginsOfAnAuthService: they wait for their turns, and all get in; the service has a bounded number
// of questions at the same time.
func TestManyGoodLoginsOfAnAuthService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &slowService{}
		g := guard.New(guard.Options{External: service, Log: quiet()})
		var logins sync.WaitGroup
		var refused atomic.Int32
		began := time.Now()
		for n := range 400 {
			logins.Go(func() {
				if _, err := g.Login(t.Context(), from("192.0.2.1", fmt.Sprint("good", n))); err != nil {
					refused.Add(1)
				}
			})
		}
		logins.Wait()
		require.Zero(t, refused.Load())
		require.LessOrEqual(t, service.most.Load(), int32(8), "questions for one address at the same time")
		require.LessOrEqual(t, time.Since(began), 5*time.Second)
		for n := range 400 {
			logins.Go(func() {
				_, err := g.Login(t.Context(), from(fmt.Sprint("192.0.3.", n%250), fmt.Sprint("good", n)))
				require.NoError(t, err)
			})
		}
		logins.Wait()
		require.LessOrEqual(t, service.most.Load(), int32(64), "questions at the same time")
	})
}

// TestGoodLoginsBesideBadOnes: at an address from which bad logins come, a good login waits for a bounded time,
// and one that was good lately does not wait. Another address notices nothing. The bad logins are few questions.
func TestGoodLoginsBesideBadOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &slowService{}
		g := guard.New(guard.Options{External: service, Log: quiet()})
		ctx, stop := context.WithCancel(t.Context())
		var strangers sync.WaitGroup
		for worker := range 20 {
			strangers.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					_, err := g.Login(ctx, from("192.0.2.1", fmt.Sprint("bad", worker, "/", n)))
					require.Error(t, err)
				}
			})
		}
		login := func(host, secret string) time.Duration {
			began := time.Now()
			_, err := g.Login(ctx, from(host, secret))
			require.NoError(t, err)
			return time.Since(began)
		}
		time.Sleep(time.Minute)
		before, began := service.asked.Load(), time.Now()
		for n := range 20 {
			require.LessOrEqual(t, login("192.0.2.1", fmt.Sprint("good", n)), 5*time.Second)
			require.Zero(t, login("192.0.2.1", fmt.Sprint("good", n)))
			require.Equal(t, 100*time.Millisecond, login("192.0.2.2", fmt.Sprint("good", n)))
		}
		require.LessOrEqual(t, float64(service.asked.Load()-before), 52*time.Since(began).Seconds()+50, "questions")
		time.Sleep(2 * time.Minute) // the answers have ended
		require.Equal(t, 100*time.Millisecond, login("192.0.2.1", "good7"), "a secret that was good before is asked about at once")
		stop()
		strangers.Wait()
	})
}
