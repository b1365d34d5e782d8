package guard_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/admission"
	"github.com/lockstepmq/lockstep/internal/auth/authd"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi/consume"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference/rights.md")

const (
	threats = "../../../docs/SECURITY.md"
	rights  = "../../../docs/reference/rights.md"
	preface = `# Rights

Generated from the behaviour of the ports (` + "`make reference`" + `): each request was made with each identity. *yes*: the request is
carried out, or refused for another reason. The columns from *publish* on are users with that right alone, on the topic of the request. *auth
service* is a client that NSQ's auth service allows to publish and subscribe. Commands marked *open* that concern deliveries work
on an allowed subscription only. A user cannot create a topic or channel beyond its quota: [SECURITY.md](../SECURITY.md).

`
)

// row is the endpoints or commands that require one right, and the answer that each identity receives.
type row struct {
	right, answers string
	what           []string
}

// rows gathers what has the same right and the same answers.
type rows []*row

func (r *rows) add(right, answers, what string) {
	for _, known := range *r {
		if known.right == right && known.answers == answers {
			known.what = append(known.what, what)
			return
		}
	}
	*r = append(*r, &row{right, answers, []string{what}})
}

func (r rows) table(columns []identity) string {
	var b strings.Builder
	b.WriteString("| right |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	fmt.Fprintf(&b, " |\n|---|%s---|\n", strings.Repeat("---|", len(columns)))
	for _, x := range r {
		fmt.Fprintf(&b, "| %s |%s %s |\n", x.right, x.answers, strings.Join(x.what, ", "))
	}
	return b.String()
}

// identity is one column of the tables.
type identity struct{ name, token string }

// identities makes one user for each right, on the topic t, and a client of the auth service
// that may publish and subscribe.
func identities(t *testing.T) (*guard.Guard, *access.Registry, []identity) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("secret") != "external" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, `{"ttl":600,"identity":"me","authorizations":[{"topic":"^t$","channels":[".*"],"permissions":["publish","subscribe"]}]}`)
	}))
	t.Cleanup(service.Close)
	r, root := users(t)
	columns := []identity{{"anonymous", ""}, {"auth service", "external"}}
	for _, u := range []struct {
		name  string
		right access.Right
	}{{"publish", access.Publish}, {"consume", access.Consume}, {"administer", access.Administer}, {"observe", access.Observe}} {
		token, err := r.Create(t.Context(), access.NewUser{Name: u.name})
		require.NoError(t, err)
		if u.right == access.Observe {
			require.NoError(t, r.Grant(t.Context(), u.name, "", u.right))
		} else {
			require.NoError(t, r.Grant(t.Context(), u.name, "t", u.right))
		}
		columns = append(columns, identity{u.name, token})
	}
	columns = append(columns, identity{"administrator", root})
	g := guard.New(guard.Options{Users: r, Log: quiet(), External: authd.New(config.AuthService{AuthHTTPAddress: []string{service.URL}}, nil)})
	return g, r, columns
}

// everything is a backend whose parts panic when they are used: an admitted request is
// answered with an error then, but none of the guard.
type everything struct {
	api.Channels
	api.Inspector
	api.Recovery
	api.Planner
	api.Tracer
}

// nowhere is a cluster without brokers for a console; all else of it panics.
type nowhere struct{ console.Cluster }

func (nowhere) View() api.ClusterView { return api.ClusterView{} }

func (nowhere) Members() api.ClusterView { return api.ClusterView{} }

// table tries every route with every identity.
func table(t *testing.T, h http.Handler, rules []httpapi.Route, columns []identity) string {
	var all rows
	for _, rule := range rules {
		var b strings.Builder
		path := strings.Replace(rule.Path, ":opt", "log_level", 1)
		for _, c := range columns {
			ctx, cancel := context.WithCancel(t.Context())
			r := httptest.NewRequest(rule.Method, path+"?topic=t&channel=c&seconds=0&rate=0&name=made-by-"+strings.ReplaceAll(c.name, " ", "-"), strings.NewReader("m"))
			r = r.WithContext(ctx)
			if rule.Path == "/debug/pprof/profile" {
				cancel() // it would take its time
			}
			if c.token != "" {
				r.Header.Set("Authorization", "Bearer "+c.token)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			cancel()
			require.NotContains(t, w.Body.String(), "NOT_ALLOWED", "%s %s is served", rule.Method, rule.Path)
			require.NotContains(t, w.Body.String(), `"NOT_FOUND"`, "%s %s is served", rule.Method, rule.Path)
			require.NotContains(t, []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}, w.Code, "%s %s", rule.Method, rule.Path)
			switch w.Code {
			case http.StatusUnauthorized:
				require.Empty(t, c.token)
				b.WriteString(" 401 |")
			case http.StatusForbidden:
				b.WriteString(" 403 |")
			default:
				b.WriteString(" yes |")
			}
		}
		all.add(right(rule.Right), b.String(), "`"+rule.Method+" "+rule.Path+"`")
	}
	return all.table(columns)
}

func right(r access.Right) string {
	switch r {
	case access.AdministerCluster:
		return "administer the cluster"
	case access.Administer:
		return "administer the topic"
	}
	return r.String()
}

// commands asks for every command with every identity.
func commands(t *testing.T, g *guard.Guard, columns []identity) string {
	var all rows
	for _, rule := range tcp.Commands() {
		var b strings.Builder
		for _, c := range columns {
			s := g.Begin(from("192.0.2.1", ""))
			if c.token != "" {
				var err error
				s, err = g.Login(t.Context(), from("192.0.2.1", c.token))
				require.NoError(t, err)
			}
			need := guard.Need{Right: rule.Right, Topic: "t"}
			if rule.Right == access.Consume {
				need.Channel = "c"
			}
			if s.Allow(t.Context(), need) == nil {
				b.WriteString(" yes |")
			} else {
				b.WriteString(" no |")
			}
		}
		all.add(right(rule.Right), b.String(), "`"+rule.Name+"`")
	}
	return all.table(columns)
}

// TestAPolicyNeedsTheRightToItsDeadLetterTopic: otherwise a channel's administrator could write to any topic.
func TestAPolicyNeedsTheRightToItsDeadLetterTopic(t *testing.T) {
	g, r, columns := identities(t)
	cluster := edgetest.New()
	defer cluster.Close()
	h := httpapi.NSQD(httpapi.Options{}, httpapi.Backend{Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Log: quiet(), Guard: g})
	status := func(query string) int {
		q := httptest.NewRequest("POST", "/v1/channel/policy?topic=t&channel=c&"+query, nil)
		q.Header.Set("Authorization", "Bearer "+columns[4].token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		return w.Code
	}
	require.Equal(t, "administer", columns[4].name)
	require.NotEqual(t, http.StatusForbidden, status("max_attempts=3"))
	require.Equal(t, http.StatusForbidden, status("dead_letter_topic=u"))
	require.NoError(t, r.Grant(t.Context(), "administer", "u", access.Publish))
	require.NotEqual(t, http.StatusForbidden, status("dead_letter_topic=u"))
}

// TestTables compares docs/reference/rights.md with the behaviour of the doors: each route is tried with each identity.
func TestTables(t *testing.T) {
	g, r, columns := identities(t)
	cluster := edgetest.New()
	defer cluster.Close()
	b := httpapi.Backend{
		Publisher: cluster, Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Log: quiet(),
		Channels: everything{}, Inspector: everything{}, Recovery: everything{}, Planner: everything{}, Tracer: everything{}, Metrics: http.NotFoundHandler(), Admission: admission.New(admission.Options{}),
		Page:  http.NotFoundHandler(),
		Users: r, Guard: g, Console: console.New(console.Options{Cluster: nowhere{}}), Consumers: consume.New(consume.Options{}, cluster, nil),
	}
	defer b.Consumers.Stop()
	o := httpapi.Options{Messages: config.Messages{MaxMsgSize: 100, MaxBodySize: 100}}
	text := preface + "## HTTP and HTTPS\n\n" + table(t, httpapi.NSQD(o, b), httpapi.Routes(), columns) +
		"\n## The separate lookup port\n\n" + table(t, httpapi.Lookup(o, b), httpapi.LookupRoutes(), columns) +
		"\n## TCP\n\n" + commands(t, g, columns)

	if *rewrite {
		require.NoError(t, os.WriteFile(rights, []byte(text), 0o644))
	}
	stands, err := os.ReadFile(rights)
	require.NoError(t, err)
	require.Equal(t, text, string(stands), "go test ./internal/auth/guard -run TestTables -rewrite")
}

// TestStatementsHaveTests: each statement of the threat model names a test that exists.
func TestStatementsHaveTests(t *testing.T) {
	content, err := os.ReadFile(threats)
	require.NoError(t, err)
	tests := map[string]bool{}
	require.NoError(t, filepath.WalkDir("../../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(source), -1) {
			tests[m[1]] = true
		}
		return err
	}))
	_, statements, found := strings.Cut(string(content), "## What is defended\n")
	require.True(t, found)
	statements, _, found = strings.Cut(statements, "\n## ")
	require.True(t, found)
	bullets := strings.Split(statements, "\n- ")[1:]
	require.NotEmpty(t, bullets)
	for _, bullet := range bullets {
		named := regexp.MustCompile(`Test\w+`).FindAllString(bullet, -1)
		require.NotEmpty(t, named, "no test: %s", bullet)
		for _, name := range named {
			require.True(t, tests[name], "there is no %s", name)
		}
	}
}

// TestReservedHeadersTakeMoreThanPublishing: a client that may only publish could withhold a message from all channels but
// one, pass it off as the copy of another, or have the channels hold it for longer than a delay may be.
func TestReservedHeadersTakeMoreThanPublishing(t *testing.T) {
	g, users, columns := identities(t)
	cluster := edgetest.New()
	defer cluster.Close()
	require.NoError(t, cluster.Do(t.Context(), api.CreateTopic{Topic: "t"}))
	h := httpapi.NSQD(httpapi.Options{Messages: config.Messages{MaxMsgSize: 100, MaxBodySize: 1000, MaxDeferTimeout: time.Hour}},
		httpapi.Backend{Publisher: cluster, Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Log: quiet(), Guard: g})
	send := func(column, header string, delay time.Duration) int {
		m := msgstream.Message{Header: []byte(header), Body: []byte("b")}
		if delay != 0 {
			m.DeliverAtNS = time.Now().Add(delay).UnixNano()
		}
		body, _, err := msgstream.AppendMessage(nil, 0, &m)
		require.NoError(t, err)
		q := httptest.NewRequest("POST", "/v1/topic/append?topic=t&partition=0", bytes.NewReader(body))
		for _, c := range columns {
			if c.name == column && c.token != "" {
				q.Header.Set("Authorization", "Bearer "+c.token)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		return w.Code
	}
	status := func(column, header string) int { return send(column, header, 0) }
	require.Equal(t, http.StatusOK, send("publish", "", 59*time.Minute))
	require.Equal(t, http.StatusForbidden, send("publish", "", 61*time.Minute))
	require.Equal(t, http.StatusOK, send("administrator", "", 61*time.Minute))
	require.Equal(t, http.StatusOK, status("publish", ""))
	require.Equal(t, http.StatusOK, status("publish", `{"k":"v"}`))
	for _, header := range []string{`{"##only_channel":"c"}`, `{"##origin":"east:1:0:7"}`, `{"\u0023#only_channel":"c"}`} {
		require.Equal(t, http.StatusForbidden, status("publish", header), header)
	}
	require.Equal(t, http.StatusForbidden, status("consume", ""))
	_, err := users.Create(t.Context(), access.NewUser{Name: access.AnonymousUser})
	require.NoError(t, err)
	require.NoError(t, users.Grant(t.Context(), access.AnonymousUser, "t", access.Publish))
	require.Equal(t, http.StatusOK, status("anonymous", `{"k":"v"}`))
	require.Equal(t, http.StatusUnauthorized, status("anonymous", `{"##only_channel":"c"}`), "with a login it may")
}
