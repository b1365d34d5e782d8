package tcp_test

import (
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/authd"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// TestEveryCommandHasARight: a command has one row, and a right that a command can require.
func TestEveryCommandHasARight(t *testing.T) {
	seen := map[string]bool{}
	for _, x := range tcp.Commands() {
		require.False(t, seen[x.Name], x.Name)
		require.Contains(t, []access.Right{access.Open, access.Publish, access.Consume}, x.Right, x.Name)
		seen[x.Name] = true
	}
	require.Len(t, seen, 18)
}

// registry has not read the users yet.
func registry() *access.Registry {
	log := logrus.New()
	log.SetLevel(logrus.FatalLevel)
	return access.NewRegistry(access.Options{Keys: metadata.Keys{Cluster: "c"}, Log: log})
}

// watch has a registry follow the users until the end of the test. It returns when the registry has read them.
func watch(t *testing.T, r *access.Registry, store metadata.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { r.Watch(ctx, store) })
	t.Cleanup(func() { cancel(); watching.Wait() })
	wait.Until(t, func() bool { return r.Policy() != nil }, "the users are read")
}

// closed is a cluster with one user, root, whose token it gives.
func closed(t *testing.T) (r *access.Registry, root string, with func(*setup)) {
	store := metadatatest.NewMemory()
	t.Cleanup(func() { _ = store.Close() })
	r = registry()
	watch(t, r, store)
	root, err := r.Create(t.Context(), access.NewUser{Name: "root", Admin: true})
	require.NoError(t, err)
	return r, root, func(s *setup) { s.backend.Guard = guard.New(guard.Options{Users: r, Log: s.backend.Log}) }
}

// TestCommandsAskForTheirRight: without AUTH, and with the other right, each is refused.
func TestCommandsAskForTheirRight(t *testing.T) {
	r, _, with := closed(t)
	b := newBroker(t, with)
	token := map[access.Right]string{}
	for right, name := range map[access.Right]string{access.Publish: "writer", access.Consume: "reader"} {
		var err error
		token[right], err = r.Create(t.Context(), access.NewUser{Name: name})
		require.NoError(t, err)
		require.NoError(t, r.Grant(t.Context(), name, "t", right))
	}
	for _, rule := range tcp.Commands() {
		if rule.Right == access.Open {
			continue
		}
		send, verb := rule.Name+" t\n", rule.Name
		switch rule.Name {
		case "MPUB", "MPUB_EXT", "MPUB_TRACE":
			send += multi("m")
		case "DPUB":
			send = "DPUB t 1\n" + sized("m")
		case "SUB", "SUB_ORDERED", "SUB_ADVANCED":
			send, verb = rule.Name+" t c\n", "SUB"
		default:
			send += sized("m")
		}
		c := b.dial()
		c.send(send)
		c.fatal("E_AUTH_FIRST AUTH required before " + verb)
		c = b.dial()
		c.send("AUTH\n" + sized(token[(access.Publish|access.Consume)&^rule.Right]))
		c.read()
		c.send(send)
		channel := ""
		if rule.Right == access.Consume {
			channel = "c"
		}
		c.fatal(`E_UNAUTHORIZED AUTH failed for ` + verb + ` on "t" "` + channel + `"`)
	}
}

// TestWordsForClientsThatMustSendASecret: go-nsq does not connect without one.
func TestWordsForClientsThatMustSendASecret(t *testing.T) {
	r, _, with := closed(t)
	_, err := r.Create(t.Context(), access.NewUser{Name: access.AnonymousUser})
	require.NoError(t, err)
	require.NoError(t, r.Grant(t.Context(), access.AnonymousUser, "t", access.Publish))
	b := newBroker(t, with)
	c := b.dial()
	c.send("AUTH\n" + sized("anonymous"))
	c.response(`{"identity":"anonymous","identity_url":"","permission_count":1}`)
	c.publish("t", "m")
	c = b.dial()
	c.send("AUTH\n" + sized("certificate"))
	c.fatal("E_AUTH_FAILED AUTH failed")
}

// TestNothingIsStoredBeforeTheUsersAreKnown, and the connection stays open: a client tries again.
func TestNothingIsStoredBeforeTheUsersAreKnown(t *testing.T) {
	unknown := access.NewRegistry(access.Options{Log: logrus.New()})
	b := newBroker(t, func(s *setup) {
		s.backend.Guard = guard.New(guard.Options{Users: unknown, NotReady: func() string { return "it waits" }, Log: s.backend.Log})
	})
	c := b.dial()
	for range 2 {
		c.send("PUB t\n" + sized("m"))
		c.error("E_PUB_FAILED PUB failed not ready, not stored: it waits")
	}
	for verb, body := range map[string]string{"PUB": sized(ext(`{"##only_channel":"c"}`, "m")), "MPUB": multi(ext(`{"##only_channel":"c"}`, "m"))} {
		c.send(verb + "_EXT t\n" + body)
		c.error("E_" + verb + "_FAILED " + verb + " failed not ready, not stored: it waits")
	}
	c.send("SUB t c\n")
	c.fatal("E_SUB_FAILED SUB failed not ready: it waits")
	c = b.dial()
	c.send("AUTH\n" + sized("root.secret"))
	c.fatal("E_AUTH_FAILED AUTH failed not ready: it waits")
	require.Empty(t, b.cluster.Topics("", "", false))
}

// TestACertificateBeforeTheUsersAreKnown: the client is the user that its certificate names as soon as the broker has read the
// users. It need not connect again.
func TestACertificateBeforeTheUsersAreKnown(t *testing.T) {
	store := metadatatest.NewMemory()
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	other, late := registry(), registry()
	watch(t, other, store)
	for _, u := range []access.NewUser{{Name: "root", Admin: true}, {Name: "shop", Certificate: true}} {
		_, err := other.Create(t.Context(), u)
		require.NoError(t, err)
	}
	require.NoError(t, other.Grant(t.Context(), "shop", "t", access.Publish))
	ca := certs.New(t)
	ca.Issue("shop")
	b := newBroker(t, withTLS(t, func(c *tls.Config) { c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, ca.Client("").RootCAs }),
		func(s *setup) {
			s.backend.Guard, s.options.MaxPerUser = guard.New(guard.Options{Users: late, Log: s.backend.Log}), 1
		})
	var clients []*client
	for range 2 {
		c := b.dial()
		c.identify(`{"feature_negotiation":true,"tls_v1":true}`)
		c.startTLS(ca.Client("shop"))
		c.send("PUB t\n" + sized("m"))
		require.Contains(t, c.read().data, "not ready, not stored")
		clients = append(clients, c)
	}
	watch(t, late, store)
	c, above := clients[0], clients[1]
	c.publish("t", "m", "m")
	above.publish("t", "m") // judged before its next command
	above.send("PUB t\n" + sized("m"))
	above.fatal("E_TOO_MANY_CONNECTIONS this user has reached its connection limit at this broker; try another one")
	c.send("PUB u\n" + sized("m"))
	c.fatal(`E_UNAUTHORIZED AUTH failed for PUB on "u" ""`)
}

// judging answers like an auth service whose first answer holds for a minute.
type judging struct {
	asked atomic.Int32
	later error // nil: the same answer again
}

func (j *judging) Query(context.Context, authd.Request) (*authd.State, error) {
	if j.asked.Add(1) > 1 && j.later != nil {
		return nil, j.later
	}
	return authd.Parse([]byte(`{"ttl":60,"authorizations":[{"topic":".*","channels":[".*"],"permissions":["publish","subscribe"]}]}`), time.Now())
}

// judged logs clients in, in a bubble. The broker checks their subscriptions again and again.
func judged(t *testing.T, later error, check func(j *judging, login func() *client)) {
	synctest.Test(t, func(t *testing.T) {
		j := &judging{later: later}
		b := newBroker(t, piped, func(s *setup) {
			s.options.MaxHeartbeatInterval = 4 * time.Hour // there is none in these tests
			s.backend.Guard = guard.New(guard.Options{External: j, Log: s.backend.Log})
		})
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { b.handler.Recheck(ctx) })
		defer wg.Wait()
		defer cancel()
		check(j, func() *client {
			c := b.dial()
			require.NoError(t, c.conn.SetDeadline(time.Time{}))
			c.identify(`{"heartbeat_interval":14400000}`)
			c.send("AUTH\n" + sized("s"))
			require.Contains(t, c.read().data, `"permission_count":1`)
			return c
		})
	})
}

const noAuthService = "E_AUTH_FAILED AUTH failed: the authorization service gives no usable answer, try again"

// TestAServiceThatIsDownEndsNothingSoon: whatever it answers but a denial, its last answer holds, also for a new login with the
// same secret, and the service is asked a few times a minute. An hour after the end of that answer the rights end.
func TestAServiceThatIsDownEndsNothingSoon(t *testing.T) {
	judged(t, authd.ErrInvalidAnswer, func(j *judging, login func() *client) {
		consumer, producer := login(), login()
		consumer.send("SUB t c\n")
		consumer.response("OK")
		producer.publish("t", "m")
		time.Sleep(time.Minute + guard.AnswerHolds - time.Second)
		require.Less(t, j.asked.Load(), int32(80))
		producer.publish("t", "m")
		login().publish("t", "m")
		consumer.send("CLS\n")
		consumer.response("CLOSE_WAIT")
		time.Sleep(time.Minute + 5*time.Second) // a question a minute
		consumer.fatal(`E_UNAUTHORIZED AUTH failed for SUB on "t" "c"`)
		producer.send("PUB_EXT t\n" + sized(ext(`{"##only_channel":"c"}`, "m")))
		producer.fatal(noAuthService)
	})
}

// TestAServiceThatRefusesEndsTheSubscription within a check of the end of its answer.
func TestAServiceThatRefusesEndsTheSubscription(t *testing.T) {
	judged(t, authd.ErrDenied, func(_ *judging, login func() *client) {
		consumer, producer := login(), login()
		consumer.send("SUB t c\n")
		consumer.response("OK")
		time.Sleep(time.Minute + 5*time.Second)
		consumer.fatal(`E_UNAUTHORIZED AUTH failed for SUB on "t" "c"`)
		producer.send("PUB t\n" + sized("m"))
		producer.fatal(`E_UNAUTHORIZED AUTH failed for PUB on "t" ""`)
	})
}

// TestARightThatIsLostEndsTheSubscription at once.
func TestARightThatIsLostEndsTheSubscription(t *testing.T) {
	r, root, with := closed(t)
	b := newBroker(t, with)
	c := b.dial()
	c.send("AUTH\n" + sized(root))
	c.read()
	c.send("SUB t c\n")
	c.response("OK")
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { b.handler.Recheck(ctx) })
	defer wg.Wait()
	defer cancel()
	_, err := r.Rotate(t.Context(), "root")
	require.NoError(t, err)
	c.fatal(`E_UNAUTHORIZED AUTH failed for SUB on "t" "c"`)
}
