package attack

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAThirdClientGetsIn is finding 9: strangers of 2, 20 and 200 addresses take all the seats that they can get, and renew
// them. A client of another address logs in each time, at the TCP port and at the HTTP port, with and without TLS; one
// that has logged in keeps its connection.
func TestAThirdClientGetsIn(t *testing.T) {
	var figures []string
	for _, tls := range []bool{false, true} {
		b := start(t, options{tls: tls, files: floodedFiles})
		b.create("orders")
		token := b.user("shop", "orders", "publish")
		before := b.client(t, token)
		for _, addresses := range []int{2, 20, 200} {
			for _, port := range []int{tcpPort, httpPort, httpsPort} {
				if port == httpsPort && !tls || port == httpPort && tls {
					continue
				}
				at := targets[port]
				const rate, seconds, tries = 400, 1.6, 30
				a := flood(t, orders{Address: b.address(at.port), From: sources(addresses), TLS: tls && port != tcpPort, Opening: at.opening, Rate: rate, Seconds: seconds, Hold: 3000})
				pause(600 * time.Millisecond) // the seats are taken
				in := 0
				for range tries {
					if b.getsIn(port, token) == nil {
						in++
					}
					pause(20 * time.Millisecond)
				}
				s := a.wait()
				_ = before.conn.SetDeadline(time.Now().Add(limit))
				require.NoError(t, before.put("orders", "m"), "a client that has logged in")
				a.stop()
				figures = append(figures, fmt.Sprintf("| %s, TLS %t | %d | %d | %d of %d |", at.name, tls, addresses, s.Opened, in, tries))
				require.Equal(t, tries, in, "%s", figures[len(figures)-1])
			}
		}
	}
	t.Logf("figures:\n\n| port | addresses | connections of strangers | logins of the third client |\n|---|---|---|---|\n%s\n", strings.Join(figures, "\n"))
}

// getsIn logs a client in on a new connection, in time.
func (b *broker) getsIn(port int, token string) error {
	if port != tcpPort {
		a, err := request(&http.Client{Timeout: 5 * time.Second, Transport: b.http.Transport}, token, "POST", b.url(port)+"/pub?topic=orders", "m")
		if err == nil && a.status != 200 {
			err = fmt.Errorf("%d %s", a.status, a.body)
		}
		return err
	}
	c, err := b.connect("")
	if err != nil {
		return err
	}
	defer c.conn.Close()
	_ = c.conn.SetDeadline(time.Now().Add(5 * time.Second))
	text, err := c.command("AUTH", token)
	if err == nil && !strings.Contains(text, `"identity":"shop"`) {
		err = fmt.Errorf("%s", text)
	}
	return err
}

func (b *broker) url(port int) string {
	if port == httpsPort {
		return "https://" + b.address(port)
	}
	return "http://" + b.address(port)
}
