package lookup

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
)

// answering is a connection to an nsqlookupd that has sent all its answers already.
type answering struct {
	net.Conn
	bytes.Reader
}

func (a *answering) Read(p []byte) (int, error)  { return a.Reader.Read(p) }
func (a *answering) Write(p []byte) (int, error) { return len(p), nil }
func (a *answering) Close() error                { return nil }
func (a *answering) SetDeadline(time.Time) error { return nil }

// FuzzAnswers: a daemon that is not what it says may answer anything; a broker neither panics
// nor takes memory for bytes that have not come.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{
		"", "\x00\x00\x00\x02OK", "\x00\x00\x00\x02OK\x00\x00\x00\x09E_INVALID", "\xff\xff\xff\xff", "\x00\x10\x00\x00x",
		"\x00\x00\x00\x02{}", `{"channels":["a","b#ephemeral"]}`, `{"channels":null}`, "[]",
	} {
		f.Add([]byte(seed))
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	f.Fuzz(func(t *testing.T, sent []byte) {
		conn := &answering{}
		conn.Reset(sent)
		p := &peer{opts: Options{Log: log}, address: "d", conn: conn, in: bufio.NewReaderSize(conn, 64), registered: map[registration]bool{}}
		for p.expectOK("PING\n") == nil {
			continue
		}
		web := &http.Client{Transport: answered(sent)}
		_, _ = ask(t.Context(), web, "http://d/channels?topic=t")
	})
}

// answered is the web server of that daemon.
type answered []byte

func (a answered) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	_, _ = w.Write(a)
	return w.Result(), nil
}
