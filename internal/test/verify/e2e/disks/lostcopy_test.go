package disks

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// lateProxy passes requests on to a broker. It answers the first append with a status of its own, and passes
// it on only when the next one comes: the put is committed after its copier has looked for it.
type lateProxy struct {
	t      *testing.T
	to     *url.URL
	status int
	mu     sync.Mutex
	uri    string // of the append that is held back
	body   []byte
	seen   int // appends
}

func newLateProxy(t *testing.T, to string, status int) (*lateProxy, string) {
	u, err := url.Parse("http://" + to)
	require.NoError(t, err)
	p := &lateProxy{t: t, to: u, status: status}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return p, s.Listener.Addr().String()
}

func (p *lateProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/topic/append" && p.holds(w, r) {
		return
	}
	httputil.NewSingleHostReverseProxy(p.to).ServeHTTP(w, r)
}

// holds reports whether it has answered an append.
func (p *lateProxy) holds(w http.ResponseWriter, r *http.Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	switch p.seen {
	case 1:
		body, err := io.ReadAll(r.Body)
		assert.NoError(p.t, err)
		p.uri, p.body = r.URL.RequestURI(), body
		http.Error(w, "the answer is lost", p.status)
		return true
	case 2:
		resp, err := http.Post(p.to.String()+p.uri, "application/octet-stream", bytes.NewReader(p.body))
		if assert.NoError(p.t, err) {
			_ = resp.Body.Close()
			assert.Equal(p.t, http.StatusOK, resp.StatusCode)
		}
	}
	return false
}

// ctlAt runs nsqctl with one broker's HTTP address.
func ctlAt(c *e2etest.Cluster, address string, args ...string) (string, error) {
	cmd := exec.CommandContext(c.T.Context(), e2etest.Built.Path("nsqctl"), append(args, "--nsqd-http-address", address)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestLateCopiesAreRecognised: a put of an import has no answer, is not in the log, and is committed when it is
// repeated: by the same import, or by another one with puts of another size after the first one was broken off.
// Each message is there once, in its order.
func TestLateCopiesAreRecognised(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	c := e2etest.Start(t, 1)
	c.Create("orders", "billing", 1)
	const count = 100
	var lines strings.Builder
	for i := range count {
		fmt.Fprintf(&lines, "m%03d\n", i)
	}
	resp, err := e2etest.Passing.Post("http://"+c.Brokers[0].HTTP+"/mpub?topic=orders", "", strings.NewReader(lines.String()))
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	stream := filepath.Join(t.TempDir(), "orders.lsx")
	c.Must("export", "orders", "--file", stream)

	check := func(topic string) {
		t.Helper()
		var bodies []string
		for _, m := range c.PeekAll(topic) {
			bodies = append(bodies, m.Body)
		}
		require.Equal(t, strings.Fields(lines.String()), bodies)
	}
	imported := func(through, topic string, batch int) (string, error) {
		return ctlAt(c, through, "import", stream, "--topic", topic, fmt.Sprint("--batch=", batch))
	}
	_, through := newLateProxy(t, c.Brokers[0].HTTP, http.StatusBadGateway)
	out, err := imported(through, "repeated", 30)
	require.NoError(t, err, out)
	check("repeated")

	for _, second := range []int{10, 30, 70} {
		topic := fmt.Sprint("continued-", second)
		p, through := newLateProxy(t, c.Brokers[0].HTTP, http.StatusBadRequest) // it gives up, and the put is in progress
		out, err := imported(through, topic, 30)
		require.Error(t, err, out)
		require.Equal(t, 1, p.seen)
		out, err = imported(through, topic, second)
		require.NoError(t, err, out)
		check(topic)
	}
}
