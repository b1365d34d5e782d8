package redact_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/observe/redact"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAddress(t *testing.T) {
	for given, want := range map[string]string{
		"http://h:1": "http://h:1", "h:1": "h:1", "": "", "[::1]:4151": "[::1]:4151", "/run/nsqd.sock": "/run/nsqd.sock", "/a:b@c": "/a:b@c", "u@h:1": "u@h:1",
		"http://u:hush@h:1/x": "http://u:xxxxx@h:1/x", "http://u@h:1": "http://u@h:1", "https://:hush@h": "https://:xxxxx@h",
		"u:hush@h:1": "…@h:1", "http://u:hu%zzsh@h:1": "http://…@h:1", "http://u:hu/sh@h:1": "http://…@h:1", "http://u:hu sh@h": "http://…@h", "http://u:hush@": "http://…@",
		"http://h/x?key=hush&a=": "http://h/x?a=xxxxx&key=xxxxx", "//u:hush@h": "…@h", "n1=http://u:hush@h:1": "n1=http://…@h:1", "http://u@h:1/": "http://u@h:1/",
	} {
		require.Equal(t, want, redact.Address(given), given)
	}
	require.Equal(t, "http://u:xxxxx@a,b:1", redact.Addresses([]string{"http://u:hush@a", "b:1"}))
}

func TestText(t *testing.T) {
	for given, want := range map[string]string{
		"dial tcp 127.0.0.1:4150: refused":               "dial tcp 127.0.0.1:4150: refused",
		`Get "http://u:hush@h:1/x": EOF`:                 `Get "http://u:xxxxx@h:1/x": EOF`,
		`"u:hush@h:1" must be host:port`:                 `"u:xxxxx@h:1" must be host:port`,
		"--a=http://u:hu@sh@h, --b=x":                    "--a=http://u:xxxxx@h, --b=x",
		"etcd [http://u:hush@a:1 http://v:hush@b:1]: no": "etcd [http://u:xxxxx@a:1 http://v:xxxxx@b:1]: no",
		"http://u@h:1 and http://h:1/@x":                 "http://u@h:1 and http://h:xxxxx@x",
		"a mail to ops@example.org":                      "a mail to ops@example.org",
		"remote=[::1]:5 who=a@b":                         "remote=[::1]:5 who=a@b",
	} {
		require.Equal(t, want, redact.Text(given), given)
	}
}

// FuzzText: no password of a URL, or of an error of net/url that quotes it, is shown.
func FuzzText(f *testing.F) {
	for _, s := range []string{"hush-hush", "hu/sh", "hu@sh", "h?u#sh", "%zz-hush", "::hush"} {
		f.Add("me", s, "h:1")
	}
	f.Fuzz(func(t *testing.T, user, password, host string) {
		const marker = "hush-"
		password += marker
		if strings.ContainsAny(user+password+host, "\"'` \t\r\n\v\f\u0085\u00a0") || strings.ContainsAny(user, ":/@") || strings.Contains(host, "@") || strings.Contains(user+host, marker) {
			return
		}
		address := "http://" + user + ":" + password + "@" + host
		shown := redact.Text(fmt.Sprintf("dial %s: refused", address))
		if strings.Contains(shown, marker) {
			t.Fatalf("%q", shown)
		}
		if strings.Contains(redact.Address(address), marker) {
			t.Fatalf("%q", redact.Address(address))
		}
	})
}
