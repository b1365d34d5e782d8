package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/client"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
)

// receive consumes until n messages came.
func receive(t *testing.T, c *client.Client, topic, channel string, n int, o client.ConsumeOptions) (all []*client.Delivery) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var mu sync.Mutex
	require.NoError(t, c.Consume(ctx, topic, channel, o, func(_ context.Context, d *client.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if all = append(all, d); len(all) == n {
			cancel()
		}
		return nil
	}))
	require.GreaterOrEqual(t, len(all), n)
	return all
}

// TestEveryField: the fields of a message reach the consumer, delays and lives hold, and one
// cluster serves all positions, ordered channels and compressions.
func TestEveryField(t *testing.T) {
	c := start(t)
	c.create(topic, 2)
	x := c.open(client.Options{}, "http://"+c.Brokers[1].HTTP)
	p := x.Producer(client.ProducerOptions{})
	ctx := t.Context()

	began := time.Now()
	require.NoError(t, p.Publish(ctx, topic, client.Message{Body: []byte("full"), Key: "k", Headers: client.Headers{"a": "ü", "b": `"`}, TTL: time.Hour}))
	d := receive(t, x, topic, channel, 1, client.ConsumeOptions{})[0]
	require.Equal(t, "full", string(d.Body))
	require.Equal(t, client.Headers{"a": "ü", "b": `"`}, d.Headers)
	require.Equal(t, "k", d.Key)
	require.Equal(t, 1, d.Attempts)
	require.Zero(t, d.Token)
	require.Len(t, d.ID, 16)
	require.WithinDuration(t, began, d.Published, 10*time.Second)

	t.Run("delay and life", func(t *testing.T) {
		require.NoError(t, p.Publish(ctx, topic, client.Message{Body: []byte("dies"), TTL: time.Millisecond}))
		began := time.Now()
		require.NoError(t, p.Publish(ctx, topic, client.Message{Body: []byte("late"), Delay: 700 * time.Millisecond}))
		d := receive(t, x, topic, channel, 1, client.ConsumeOptions{})[0]
		require.Equal(t, "late", string(d.Body))
		require.GreaterOrEqual(t, time.Since(began), 700*time.Millisecond)
	})
	t.Run("one partition for a key", func(t *testing.T) {
		var batch []client.Message
		for i := range 50 {
			batch = append(batch, client.Message{Body: []byte(fmt.Sprint(i)), Key: "k"})
		}
		require.NoError(t, p.PublishAll(ctx, topic, batch...))
		for i, d := range receive(t, x, topic, channel, 50, client.ConsumeOptions{MaxInFlight: 1}) {
			require.Equal(t, fmt.Sprint(i), string(d.Body))
		}
	})
	t.Run("requeue and lease", func(t *testing.T) {
		require.NoError(t, p.Publish(ctx, topic, client.Message{Body: []byte("again")}))
		ctx, cancel := context.WithTimeout(ctx, waitLimit)
		defer cancel()
		var at []time.Time
		require.NoError(t, x.Consume(ctx, topic, channel, client.ConsumeOptions{Lease: time.Second}, func(ctx context.Context, d *client.Delivery) error {
			at = append(at, time.Now())
			switch d.Attempts {
			case 1:
				return client.RetryAfter(errors.New("later"), 600*time.Millisecond)
			case 2: // longer than the lease: TOUCH extends it
				time.Sleep(1500 * time.Millisecond)
				require.NoError(t, ctx.Err())
				return client.RetryAfter(errors.New("now"), 0)
			}
			cancel()
			return nil
		}))
		require.Len(t, at, 3)
		require.GreaterOrEqual(t, at[1].Sub(at[0]), 600*time.Millisecond)
	})
	t.Run("from", func(t *testing.T) {
		all := receive(t, x, topic, "second", 53, client.ConsumeOptions{From: client.FromSequence(0)})
		require.True(t, slices.ContainsFunc(all, func(d *client.Delivery) bool { return string(d.Body) == "full" }))
	})
	t.Run("ordered", func(t *testing.T) {
		var want []string
		for i := range 200 {
			want = append(want, fmt.Sprint(i))
			require.NoError(t, p.Publish(ctx, "sequence", client.Message{Body: []byte(want[i]), Key: "k"}))
		}
		var got []string
		for _, d := range receive(t, x, "sequence", "ordered", 200, client.ConsumeOptions{Ordered: true}) {
			require.NotZero(t, d.Token)
			got = append(got, string(d.Body))
		}
		require.Equal(t, want, got)
	})
	t.Run("too big", func(t *testing.T) {
		u := p.Send(ctx, topic, client.Message{Body: make([]byte, 2<<20)})
		require.NoError(t, p.Publish(ctx, topic, client.Message{Body: []byte("behind it")}))
		require.ErrorIs(t, u.Err(), client.ErrTooBig)
		require.ErrorIs(t, u.Err(), client.ErrNotStored)
	})
	t.Run("compression", func(t *testing.T) {
		for _, how := range []client.Compression{client.Snappy, client.Deflate} {
			z := c.open(client.Options{Compression: how})
			body := strings.Repeat("hello ", 50_000)
			name := fmt.Sprintf("compressed%d", how)
			require.NoError(t, z.Producer(client.ProducerOptions{}).Publish(ctx, name, client.Message{Body: []byte(body)}))
			require.Equal(t, body, string(receive(t, z, name, channel, 1, client.ConsumeOptions{})[0].Body))
		}
	})
}

// TestGuardedCluster: TLS, a token, discovery with the rights of one topic, and the errors
// without them.
func TestGuardedCluster(t *testing.T) {
	ca := certs.New(t)
	ca.Issue("broker")
	auth := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("secret") != "open sesame" {
			http.Error(w, "unknown", http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, `{"ttl":60,"authorizations":[{"topic":"^%s$","channels":[".*"],"permissions":["publish","subscribe"]}]}`, topic)
	}))
	t.Cleanup(auth.Close)
	c := start(t, "--tls-cert="+ca.File("broker.pem"), "--tls-key="+ca.File("broker.key"), "--auth-http-address="+auth.Listener.Addr().String())
	pem, err := os.ReadFile(ca.File("ca.pem"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))
	o := client.Options{TLS: &tls.Config{RootCAs: roots}, Token: "open sesame"}

	// The token may not list the brokers, but those of its topic, if there is one.
	x := c.open(o, "https://"+c.Brokers[0].HTTPS)
	p := x.Producer(client.ProducerOptions{RetryBudget: time.Second})
	err = p.Publish(t.Context(), topic, client.Message{Body: []byte("hello")})
	require.ErrorIs(t, err, client.ErrNotStored)
	require.ErrorContains(t, err, "the topic does not exist")
	require.NoError(t, c.open(o).Producer(client.ProducerOptions{}).Publish(t.Context(), topic, client.Message{Body: []byte("first")}))

	require.NoError(t, p.Publish(t.Context(), topic, client.Message{Body: []byte("hello")}))
	require.Equal(t, "first", string(receive(t, x, topic, channel, 2, client.ConsumeOptions{MaxInFlight: 1})[0].Body))

	err = p.Publish(t.Context(), "another", client.Message{Body: []byte("hello")})
	require.ErrorIs(t, err, client.ErrUnauthorized)
	require.ErrorIs(t, err, client.ErrNotStored)
	nothing := func(context.Context, *client.Delivery) error { return nil }
	require.ErrorIs(t, x.Consume(t.Context(), "another", channel, client.ConsumeOptions{}, nothing), client.ErrUnauthorized)

	o.Token = "wrong"
	_, err = client.Open(t.Context(), c.tcp(), o)
	require.ErrorIs(t, err, client.ErrUnauthorized)
	o.Token = ""
	err = c.open(o).Producer(client.ProducerOptions{}).Publish(t.Context(), topic, client.Message{Body: []byte("hello")})
	require.ErrorIs(t, err, client.ErrUnauthorized)
	o.TLS = &tls.Config{}
	_, err = client.Open(t.Context(), c.tcp(), o)
	require.ErrorContains(t, err, "certificate")
}

// TestGuide: the program of docs/guide/clients-go.md compiles and does what the guide says, to a reader who has followed
// the page before it.
func TestGuide(t *testing.T) {
	c := start(t)
	c.post("/topic/create", url.Values{"topic": {"greetings"}})
	c.post("/channel/create", url.Values{"topic": {"greetings"}, "channel": {"go"}})
	program := guide(t)
	for i, b := range c.Brokers {
		program = strings.ReplaceAll(program, fmt.Sprintf("127.0.0.1:4%d50", i+1), b.TCP)
	}
	require.Contains(t, program, c.Brokers[2].TCP)
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	sum, err := os.ReadFile("../go.sum")
	require.NoError(t, err)
	mod, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	text := strings.Replace(string(mod), "module github.com/lockstepmq/lockstep/client", "module guide", 1) +
		"\nrequire github.com/lockstepmq/lockstep/client v0.0.0\nreplace github.com/lockstepmq/lockstep/client => " + root + "\n"
	for name, text := range map[string]string{"go.mod": text, "go.sum": string(sum), "main.go": program} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	run := exec.CommandContext(ctx, "go", "run", "-mod=mod", ".")
	run.Dir = dir
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "from Go 7\n", string(out))
}

// guide is the first block of Go in the guide.
func guide(t *testing.T) string {
	text, err := os.ReadFile("../../docs/guide/clients-go.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "```go\npackage main")
	require.True(t, ok)
	block, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)
	return "package main" + block
}
