package listen_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/listen"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// users has an administrator, and a user with the right to observe that needs no login if anonymous.
func users(t *testing.T, anonymous bool) (g *guard.Guard, r *access.Registry, token string) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	store := metadatatest.NewMemory()
	r = access.NewRegistry(access.Options{Keys: metadata.Keys{Cluster: "c"}, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { r.Watch(ctx, store) })
	t.Cleanup(func() {
		cancel()
		watch.Wait()
		_ = store.Close()
	})
	wait.Until(t, func() bool { return r.Policy() != nil }, "the users are read")
	token, err := r.Create(t.Context(), access.NewUser{Name: "root", Admin: true})
	require.NoError(t, err)
	if anonymous {
		_, err := r.Create(t.Context(), access.NewUser{Name: access.AnonymousUser})
		require.NoError(t, err)
		require.NoError(t, r.Grant(t.Context(), access.AnonymousUser, "", access.Observe))
	}
	return guard.New(guard.Options{Users: r, Log: log}), r, token
}

// TestAThirdClientGetsIn: at every port, while strangers of 2 and of 20 addresses take all the seats that they can get.
// A client that has logged in keeps its connection.
func TestAThirdClientGetsIn(t *testing.T) {
	for _, addresses := range []int{2, 20} {
		t.Run(fmt.Sprint(addresses), func(t *testing.T) {
			g, _, token := users(t, false)
			b := startGuarded(t, listen.Options{MaxTCP: 60, MaxHTTP: 60, MaxTCPPerAddress: 54, MaxHTTPPerAddress: 54, MaxTCPWaiting: 30, MaxHTTPWaiting: 30, SpareHTTP: 2}, g)
			ports := []struct {
				address net.Addr
				ask     string
				tls     bool
			}{
				{b.Addr(listen.TCP), "  V2AUTH\n\x00\x00\x00" + string(rune(len(token))) + token, false},
				{b.Addr(listen.HTTP), request("/stats", token), false}, {b.Addr(listen.HTTPS), request("/stats", token), true}, {b.Addr(listen.Lookup), request("/topics", token), false},
			}
			var strangers []net.Conn
			defer func() {
				for _, c := range strangers {
					_ = c.Close()
				}
			}()
			flood := func() {
				for n := range 100 {
					for _, p := range ports {
						c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+n%addresses))}}).Dial("tcp", p.address.String())
						require.NoError(t, err)
						strangers = append(strangers, c)
					}
				}
			}
			flood()
			for round := range 3 {
				for _, p := range ports {
					conn, err := net.Dial("tcp", p.address.String())
					require.NoError(t, err)
					defer conn.Close()
					if p.tls {
						conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
					}
					for range 2 { // the second time on a connection that is there
						_, err = io.WriteString(conn, p.ask)
						require.NoError(t, err)
						answer := make([]byte, 32<<10)
						n, err := conn.Read(answer)
						require.NoError(t, err, "%s, round %d", p.address, round)
						require.Regexp(t, `200 OK|"identity":"root"|E_INVALID AUTH`, string(answer[:n]))
						if n = strings.Index(p.ask, "AUTH"); n >= 0 {
							p.ask = p.ask[n:]
						}
						flood()
					}
				}
			}
			require.Positive(t, b.refused("tcp_waiting"))
			require.Positive(t, b.refused("http_waiting"))
		})
	}
}

func request(path, token string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer " + token + "\r\n\r\n"
}

// TestSeatsForThoseWhoLogIn: requests that need no login leave a tenth of the seats.
func TestSeatsForThoseWhoLogIn(t *testing.T) {
	g, _, token := users(t, true)
	b := startGuarded(t, listen.Options{MaxHTTP: 20, MaxHTTPWaiting: 10, SpareHTTP: 2}, g)
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	ask := func(token string) string {
		say := strings.Replace(request("/stats", token), "Authorization: Bearer \r\n", "", 1)
		conn, answer := speak(t, "127.0.0.1", b.Addr(listen.HTTP), say)
		open = append(open, conn)
		return answer
	}
	for range 18 {
		require.Contains(t, ask(""), "200 OK")
	}
	require.Contains(t, ask(""), "503 Service Unavailable")
	require.Contains(t, ask(token), "200 OK")
	resp, err := http.Get("http://" + b.Addr(listen.HTTP).String() + "/ping")
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// TestTCPSeatsForThoseWhoLogIn: clients that need no login leave a tenth of the seats, and a client that logs in has one of
// these, although it has the rights of all others before.
func TestTCPSeatsForThoseWhoLogIn(t *testing.T) {
	g, _, token := users(t, true)
	b := startGuarded(t, listen.Options{MaxTCP: 20, MaxTCPWaiting: 10}, g)
	const identify = "  V2IDENTIFY\n\x00\x00\x00\x02{}"
	for range 18 {
		conn, answer := speak(t, "127.0.0.1", b.Addr(listen.TCP), identify)
		defer conn.Close()
		require.Contains(t, answer, "OK")
	}
	conn, answer := speak(t, "127.0.0.1", b.Addr(listen.TCP), identify+"SUB t c\n")
	defer conn.Close()
	if !strings.Contains(answer, "E_TOO_MANY_CONNECTIONS") {
		rest, err := io.ReadAll(conn)
		require.NoError(t, err)
		answer += string(rest)
	}
	require.Contains(t, answer, "E_TOO_MANY_CONNECTIONS")
	conn, answer = speak(t, "127.0.0.1", b.Addr(listen.TCP), identify)
	defer conn.Close()
	require.Contains(t, answer, "OK", "it may still log in")
	_, err := io.WriteString(conn, "AUTH\n\x00\x00\x00"+string(rune(len(token)))+token)
	require.NoError(t, err)
	reply := make([]byte, 1024)
	n, err := conn.Read(reply)
	require.NoError(t, err)
	require.Contains(t, string(reply[:n]), `"identity":"root"`)
}
