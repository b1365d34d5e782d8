package guard_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/admission"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
)

// TestAuditFileIsRotatedByRename: the next entry after a rename or a removal is in a new file,
// and only the owner may read it.
func TestAuditFileIsRotatedByRename(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.json")
	require.NoError(t, os.WriteFile(path, []byte("before\n"), 0o644))
	file, err := guard.OpenAuditFile(path)
	require.NoError(t, err)
	defer file.Close()
	g := guard.New(guard.Options{Log: quiet(), AuditFile: file})
	note := func(action string) {
		g.Audit.Note(guard.Entry{Time: time.Unix(0, 0), Identity: "root", Remote: "192.0.2.1:1", Action: action, Result: guard.ResultOK})
	}
	line := func(action string) string {
		return fmt.Sprintf(`{"time":"1970-01-01T00:00:00Z","identity":"root","remote":"192.0.2.1:1","action":%q,"result":"ok"}`+"\n", action)
	}
	content := func(path string) string {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(text)
	}
	note("one")
	require.Equal(t, "before\n"+line("one"), content(path))
	require.NoError(t, os.Rename(path, path+".1"))
	note("two")
	require.Equal(t, line("two"), content(path))
	require.Equal(t, "before\n"+line("one"), content(path+".1"))
	require.NoError(t, os.Remove(path))
	note("three")
	require.Equal(t, line("three"), content(path))
	require.NoError(t, os.Truncate(path, 0)) // copytruncate
	note("four")
	require.Equal(t, line("four"), content(path))
}

// TestAnAuditFileThatCannotBeWritten stops no action, and says so once.
func TestAnAuditFileThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	require.NoError(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "audit.json")
	file, err := guard.OpenAuditFile(path)
	require.NoError(t, err)
	defer file.Close()
	var log bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(&log)
	g := guard.New(guard.Options{Log: logger, AuditFile: file})
	note := func() {
		g.Audit.Note(guard.Entry{Time: time.Now(), Action: "delete", Result: guard.ResultOK})
	}
	note()
	require.NoError(t, os.Rename(dir, dir+".away"))
	note()
	note()
	require.Equal(t, 1, strings.Count(log.String(), "cannot write the audit file"))
	require.NoError(t, os.Mkdir(dir, 0o700))
	note()
	require.Contains(t, log.String(), "missing=2")
	require.Len(t, g.Audit.Entries(), 4)
	require.Equal(t, 4, strings.Count(log.String(), "audit=true"), "the log has them all")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(text, []byte("\n")))
	_, err = guard.OpenAuditFile(filepath.Join(dir, "nowhere", "audit.json"))
	require.Error(t, err)
}

// TestImpliedEntriesDoNotPushActionsOut: a client that creates topics by puts.
func TestImpliedEntriesDoNotPushActionsOut(t *testing.T) {
	g := guard.New(guard.Options{Log: quiet()})
	g.Audit.Note(guard.Entry{Time: time.Now(), Action: "delete", Result: guard.ResultOK})
	for i := range 3000 {
		g.Note(api.Requester{Identity: "shop", Action: "PUB"}, fmt.Sprint("created topic t", i), nil)
	}
	g.Note(api.Requester{Identity: "shop", Action: "PUB"}, "create topic t", errors.New("quota reached"))
	kept := g.Audit.Entries()
	require.Len(t, kept, 1001)
	require.Equal(t, "delete", kept[0].Action)
	last := kept[1000]
	require.Equal(t, "create topic t: quota reached", last.Detail)
	require.Equal(t, guard.ResultRefused, last.Result)
	require.True(t, last.Implied)
}

// TestEveryActionIsAudited: each route that changes something, or that only an administrator
// may use, leaves one entry with its client, whether it is carried out or refused. The routes
// that are left out read, publish, consume, or are those below.
func TestEveryActionIsAudited(t *testing.T) {
	reads := []string{"GET /v1/user/list", "GET /v1/audit", "GET /v1/channel/deferred", "GET /v1/cluster/invite"}
	_, r, columns := identities(t)
	root := columns[len(columns)-1].token
	audited := 0
	for port, rules := range map[string][]httpapi.Route{"http": httpapi.Routes(), "lookup": httpapi.LookupRoutes()} {
		for _, rule := range rules {
			name := rule.Method + " " + rule.Path
			administers := rule.Right == access.Administer || rule.Right == access.AdministerCluster
			changes := rule.Method != http.MethodGet && rule.Right != access.Publish && rule.Right != access.Consume
			require.Equal(t, (administers || changes) && !slices.Contains(reads, name), rule.Audited, "%s: audited", name)
			if !rule.Audited || rule.Path == "/debug/pprof/profile" {
				continue
			}
			audited++
			for _, token := range []string{"", root} {
				g := guard.New(guard.Options{Users: r, Log: quiet()})
				cluster := edgetest.New()
				b := httpapi.Backend{
					Publisher: cluster, Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Log: quiet(),
					Channels: everything{}, Inspector: everything{}, Recovery: everything{}, Admission: admission.New(admission.Options{}), Users: r, Guard: g,
				}
				h := httpapi.NSQD(httpapi.Options{}, b)
				if port == "lookup" {
					h = httpapi.Lookup(httpapi.Options{}, b)
				}
				path := strings.Replace(rule.Path, ":opt", "log_level", 1)
				q := httptest.NewRequest(rule.Method, path+"?topic=t&channel=c&rate=0&name=nobody", strings.NewReader("m"))
				q.RemoteAddr = "192.0.2.7:9"
				want := guard.Entry{Identity: "anonymous", Remote: q.RemoteAddr, Action: rule.Method + " " + path, Detail: q.URL.RawQuery, Result: guard.ResultRefused}
				if token != "" {
					q.Header.Set("Authorization", "Bearer "+token)
					want.Identity = "root"
				}
				w, before := httptest.NewRecorder(), time.Now()
				h.ServeHTTP(w, q)
				entries := g.Audit.Entries()
				require.Len(t, entries, 1, "%s: %d %s", name, w.Code, w.Body)
				got := entries[0]
				require.Equal(t, w.Code, got.Status, name)
				require.True(t, !got.Time.Before(before) && !got.Time.After(time.Now()), "%s: %s", name, got.Time)
				if token != "" {
					require.NotEqual(t, guard.ResultRefused, got.Result, name)
					want.Result = got.Result
				}
				want.Time, want.Status = got.Time, got.Status
				require.Equal(t, want, got, name)
				cluster.Close()
			}
		}
	}
	require.Greater(t, audited, 50)
}

// TestUserRate: the puts of a user are bounded over all of its sessions, and counted.
func TestUserRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, root := users(t)
		token, err := r.Create(t.Context(), access.NewUser{Name: "shop"})
		require.NoError(t, err)
		var counted []error
		g := guard.New(guard.Options{Users: r, Log: quiet(), Answered: func(err error) { counted = append(counted, err) }})
		login := func(token string) *guard.Session {
			s, err := g.Login(t.Context(), from("192.0.2.1", token))
			require.NoError(t, err)
			return s
		}
		one, two, free := login(token), login(token), login(root)
		require.NoError(t, one.AllowPut(1<<20, 1<<40), "no limit")
		two64, million := int64(2), int64(1_000_000)
		require.NoError(t, r.SetQuota(t.Context(), "shop", access.QuotaChange{PutRate: &two64, PutBytesRate: &million}))
		require.NoError(t, one.AllowPut(1, 10))
		require.NoError(t, two.AllowPut(1, 10))
		require.ErrorIs(t, one.AllowPut(1, 10), outcome.ErrRateLimited)
		require.NoError(t, free.AllowPut(1<<20, 1<<40))
		require.Equal(t, []error{outcome.ErrRateLimited}, counted)
		require.Zero(t, testing.AllocsPerRun(1000, func() { _ = free.AllowPut(1, 100) }), "without a rate")
		require.NoError(t, guard.New(guard.Options{Log: quiet()}).Begin(from("192.0.2.1", "")).AllowPut(1, 1))
	})
}
