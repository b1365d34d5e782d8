package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/guard"
)

// TestQuotasAtEveryDoor: the quota and the rate of a user refuse over TCP and HTTP, definitely,
// and the connection stays open. Owners and quotas outlive the process.
func TestQuotasAtEveryDoor(t *testing.T) {
	t.Parallel()
	b := start(t, "--max-topics=3", "--max-channels=1")
	root := b.user("", "root", "&admin=true")
	shop := b.user(root, "shop", "")
	b.grant(root, "shop", "*", "publish,consume,administer")
	status, text := b.with(root, "POST", "/v1/user/quota?name=shop&topics=2&partitions=5", "")
	require.Equal(t, 200, status, text)
	for query, want := range map[string]int{
		"name=shop": 400, "name=shop&topics=-1": 400, "name=shop&topics=x": 400, "name=shop&put_rate=9999999999999": 400,
		"name=shop&topic=1": 400, "name=nobody&topics=1": 404, "name=bootstrap-admin&topics=1": 404,
	} {
		status, text := b.with(root, "POST", "/v1/user/quota?"+query, "")
		require.Equal(t, want, status, "%s: %s", query, text)
	}
	c := b.dial()
	c.command(shop, "AUTH")
	c.next()
	c.put("one", "m")
	status, text = b.with(shop, "POST", "/topic/create?topic=two&partitions=5", "")
	require.Equal(t, 403, status)
	require.JSONEq(t, `{"message":"quota reached, nothing stored: user shop has 1 of 5 partitions"}`, text)
	status, text = b.with(shop, "POST", "/pub?topic=two", "m")
	require.Equal(t, 200, status, text)
	c.command("m", "PUB three")
	c.expect("E_PUB_FAILED PUB failed quota reached, nothing stored: user shop has 2 of 2 topics")
	status, _ = b.with(shop, "POST", "/pub?topic=three", "m")
	require.Equal(t, 403, status)
	c.put("one", "the connection is open")
	status, text = b.with(root, "POST", "/topic/create?topic=three", "")
	require.Equal(t, 200, status, text)
	status, text = b.with(root, "POST", "/topic/create?topic=four", "")
	require.Equal(t, 403, status, text)
	status, text = b.with(shop, "POST", "/channel/create?topic=one&channel=a", "")
	require.Equal(t, 200, status, text)
	sub := b.dial()
	sub.command(shop, "AUTH")
	sub.next()
	sub.command("", "SUB one b")
	sub.expect("E_SUB_FAILED SUB failed quota reached, nothing stored: topic one has 1 of 1 channels (--max-channels)")

	status, text = b.with(root, "POST", "/v1/user/quota?name=shop&put_rate=1", "")
	require.Equal(t, 200, status, text)
	limited := func(token string) {
		b.eventually("is limited", func() bool {
			status, text = b.with(token, "POST", "/pub?topic=one", "m")
			return status == 429
		})
		require.JSONEq(t, `{"message":"rate limited, not stored"}`, text)
	}
	limited(shop)
	_, metrics := b.with(root, "GET", "/metrics", "")
	require.Regexp(t, `lockstep_puts_total\{[^}]*rate_limited[^}]*\} [1-9]`, metrics)
	_, text = b.with(root, "GET", "/v1/user/list", "")
	require.Contains(t, text, `"quota":{"topics":2,"partitions":5,"channels":10000,"put_rate":1},"used":{"topics":2,"partitions":2,"channels":1}`)

	status, text = b.with(root, "POST", "/v1/topic/set?topic=one&max_put_rate=1&max_put_bytes_rate=100000", "")
	require.Equal(t, 200, status, text)
	require.Contains(t, text, `"max_put_rate":1,"max_put_bytes_rate":100000`)
	limited(root)
}

// TestAuditFile: requests, and what puts and subscriptions create, stand in the file.
func TestAuditFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.json")
	b := start(t, "--audit-file="+path)
	b.dial().put("orders", "a-message-body")
	sub := b.dial()
	sub.command("", "SUB orders ch")
	sub.expect("OK")
	b.with("", "POST", "/pub?topic=other", "a-message-body")
	require.NoError(t, os.Rename(path, path+".1"))
	b.with("", "POST", "/topic/delete?topic=other", "")
	read := func(path string) (got []string) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NotContains(t, string(text), "a-message-body")
		for s := bufio.NewScanner(strings.NewReader(string(text))); s.Scan(); {
			var e guard.Entry
			require.NoError(t, json.Unmarshal(s.Bytes(), &e))
			require.Contains(t, e.Remote, "127.0.0.1:")
			got = append(got, e.Identity+" "+e.Action+" "+e.Detail+" "+e.Result)
		}
		return got
	}
	require.Equal(t, []string{
		"anonymous PUB created topic orders ok", "anonymous SUB created channel orders/ch ok", "anonymous POST /pub created topic other ok",
	}, read(path+".1"))
	require.Equal(t, []string{"anonymous POST /topic/delete topic=other ok"}, read(path))
}
