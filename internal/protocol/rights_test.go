package protocol_test

import (
	"context"
	"crypto/tls"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/access"
	"github.com/lockstepmq/lockstep/internal/auth"
	"github.com/lockstepmq/lockstep/internal/guard"
	"github.com/lockstepmq/lockstep/internal/protocol"
	"github.com/lockstepmq/lockstep/internal/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/testkit/wait"
)

// TestEveryCommandHasARight: a command that the connection understands has a row.
func TestEveryCommandHasARight(t *testing.T) {
	var rows, understood []string
	for _, r := range protocol.Rules() {
		rows = append(rows, r.Command)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "conn.go", nil, 0)
	require.NoError(t, err)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "command" {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if c, ok := n.(*ast.CaseClause); ok {
				for _, e := range c.List {
					verb, err := strconv.Unquote(e.(*ast.BasicLit).Value)
					require.NoError(t, err)
					understood = append(understood, verb)
				}
			}
			return true
		})
	}
	understood = append(understood, "IDENTIFY") // before the switch
	slices.Sort(rows)
	slices.Sort(understood)
	require.Equal(t, understood, rows)
}

// registry has not read the users yet.
func registry() *access.Registry {
	log := logrus.New()
	log.SetLevel(logrus.FatalLevel)
	return access.NewRegistry(access.Options{Keys: meta.Keys{Cluster: "c"}, Log: log})
}

// watch has a registry follow the users until the end of the test. It returns when the registry has read them.
func watch(t *testing.T, r *access.Registry, store meta.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { r.Watch(ctx, store) })
	t.Cleanup(func() { cancel(); watching.Wait() })
	wait.Until(t, func() bool { return r.Policy() != nil }, "the users are read")
}

// closed is a cluster with one user, root, whose token it gives.
func closed(t *testing.T) (r *access.Registry, root string, with func(*setup)) {
	store := meta.NewMemory()
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
		require.NoError(t, r.GrantTopic(t.Context(), name, "t", right))
	}
	for _, rule := range protocol.Rules() {
		if rule.Right == access.Open {
			continue
		}
		send, verb := rule.Command+" t\n", rule.Command
		switch rule.Command {
		case "MPUB", "MPUB_EXT", "MPUB_TRACE":
			send += multi("m")
		case "DPUB":
			send = "DPUB t 1\n" + sized("m")
		case "SUB", "SUB_ORDERED", "SUB_ADVANCED":
			send, verb = rule.Command+" t c\n", "SUB"
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
	require.NoError(t, r.GrantTopic(t.Context(), access.AnonymousUser, "t", access.Publish))
	b := newBroker(t, with)
	c := b.dial()
	c.send("AUTH\n" + sized("anonymous"))
	c.response(`{"identity":"anonymous","identity_url":"","permission_count":1}`)
	c.publish("t", "m")
	c = b.dial()
	c.send("AUTH\n" + sized("certificate"))
	c.fatal("E_AUTH_FAILED AUTH failed")
}

// TestNothingIsStoredBeforeTheUsersAreKnown, and the connection stays open: a client tries
// again.
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
	store := meta.NewMemory()
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	other, late := registry(), registry()
	watch(t, other, store)
	for _, u := range []access.NewUser{{Name: "root", Admin: true}, {Name: "shop", Certificate: true}} {
		_, err := other.Create(t.Context(), u)
		require.NoError(t, err)
	}
	require.NoError(t, other.GrantTopic(t.Context(), "shop", "t", access.Publish))
	ca := certs.New(t)
	ca.Issue("shop")
	b := newBroker(t, withTLS(t, func(c *tls.Config) { c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, ca.Client("").RootCAs }),
		func(s *setup) { s.backend.Guard = guard.New(guard.Options{Users: late, Log: s.backend.Log}) })
	c := b.dial()
	c.identify(`{"feature_negotiation":true,"tls_v1":true}`)
	c.startTLS(ca.Client("shop"))
	c.send("PUB t\n" + sized("m"))
	require.Contains(t, c.read().data, "not ready, not stored")
	watch(t, late, store)
	c.publish("t", "m")
	c.send("PUB u\n" + sized("m"))
	c.fatal(`E_UNAUTHORIZED AUTH failed for PUB on "u" ""`)
}

// judging answers like an auth service whose answers run out at once, and then with an error.
type judging struct {
	first *auth.State
	asked atomic.Int32
	later error
}

func (j *judging) Query(context.Context, auth.Request) (*auth.State, error) {
	if j.asked.Add(1) > 2 { // AUTH and SUB
		return nil, j.later
	}
	return &auth.State{Authorizations: j.first.Authorizations}, nil // it has expired
}

// TestAReservedHeaderWhileTheServiceIsDown: nobody knows whether the client has the right. It is not told that it has not.
func TestAReservedHeaderWhileTheServiceIsDown(t *testing.T) {
	j := &judging{first: granted(t), later: errors.New("connection refused")}
	b := newBroker(t, func(s *setup) { s.backend.Guard = guard.New(guard.Options{External: j, Log: s.backend.Log}) })
	c := b.dial()
	c.send("AUTH\n" + sized("s"))
	c.read()
	c.send("PUB_EXT t\n" + sized(ext(`{"##only_channel":"c"}`, "m"))) // the second query is for the right to publish
	c.fatal("E_AUTH_FAILED AUTH failed")
}

// granted is an answer that allows everything.
func granted(t *testing.T) *auth.State {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"ttl":60,"authorizations":[{"topic":".*","channels":[".*"],"permissions":["publish","subscribe"]}]}`)
	}))
	defer s.Close()
	state, err := auth.New(auth.Options{Addresses: []string{s.URL}, ConnectTimeout: wait.Limit, RequestTimeout: wait.Limit}).Query(t.Context(), auth.Request{})
	require.NoError(t, err)
	return state
}

// rechecked subscribes a client in a bubble, and has its right checked again.
func rechecked(t *testing.T, later error, check func(*client)) {
	j := &judging{first: granted(t), later: later} // its socket is outside the bubble
	synctest.Test(t, func(t *testing.T) { check(j.recheck(t)) })
}

func (j *judging) recheck(t *testing.T) *client {
	b := newBroker(t, piped, func(s *setup) { s.backend.Guard = guard.New(guard.Options{External: j, Log: s.backend.Log}) })
	c := b.dial()
	c.send("AUTH\n" + sized("s"))
	c.read()
	c.send("SUB t c\n")
	c.response("OK")
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { b.handler.Recheck(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	synctest.Wait()
	require.EqualValues(t, 3, j.asked.Load())
	return c
}

// TestAServiceThatIsDownEndsNoSubscription: it has not said no.
func TestAServiceThatIsDownEndsNoSubscription(t *testing.T) {
	rechecked(t, errors.New("connection refused"), func(c *client) {
		c.send("CLS\n")
		c.response("CLOSE_WAIT")
	})
}

// TestAServiceThatRefusesEndsTheSubscription within a check of the end of its answer.
func TestAServiceThatRefusesEndsTheSubscription(t *testing.T) {
	rechecked(t, auth.ErrInvalidAnswer, func(c *client) { c.fatal(`E_UNAUTHORIZED AUTH failed for SUB on "t" "c"`) })
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
