package chaos

import (
	"bufio"
	endian "encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/testkit/nsqtext"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

// onceAnswers is how long a producer waits for an answer: longer than a broker holds a put (onceHold).
const onceAnswers = onceHold + time.Second

// onceConn is a connection that pipelines commands. One goroutine uses it.
type onceConn struct {
	conn net.Conn
	in   *bufio.Reader
}

// dialOnce connects, and names the producer if it numbers its messages.
func dialOnce(address, producer string) (*onceConn, error) {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return nil, err
	}
	w := &onceConn{conn, bufio.NewReader(conn)}
	hello := "  V2"
	if producer != "" {
		hello += "IDENTIFY\n" + nsqtext.Sized(fmt.Sprintf(`{"producer_id":%q}`, producer))
	}
	_ = conn.SetDeadline(time.Now().Add(onceAnswers))
	if _, err = io.WriteString(conn, hello); err == nil && producer != "" {
		_, _, err = w.answer()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return w, nil
}

// answer reads the answer to a command.
func (w *onceConn) answer() (kind uint32, text string, err error) {
	for {
		var head [8]byte
		if _, err := io.ReadFull(w.in, head[:]); err != nil {
			return 0, "", err
		}
		body := make([]byte, endian.BigEndian.Uint32(head[:])-4)
		if _, err := io.ReadFull(w.in, body); err != nil {
			return 0, "", err
		}
		if kind = endian.BigEndian.Uint32(head[4:]); kind == 0 && string(body) == "_heartbeat_" {
			if _, err := io.WriteString(w.conn, "NOP\n"); err != nil {
				return 0, "", err
			}
			continue
		}
		return kind, string(body), nil
	}
}

// pipeline writes commands in one segment and reads their answers. If lost, the producer leaves before it reads any.
func (w *onceConn) pipeline(commands []string, lost bool) (all []onceAnswer, err error) {
	_ = w.conn.SetDeadline(time.Now().Add(onceAnswers))
	all = make([]onceAnswer, len(commands))
	sent := record.Now()
	for i := range all {
		all[i].Answer, all[i].sent = judge.InDoubt, sent
	}
	if _, err = io.WriteString(w.conn, strings.Join(commands, "")); err != nil {
		return all, err
	}
	if lost {
		return all, io.ErrUnexpectedEOF
	}
	for i := range all {
		kind, text, err := w.answer()
		if err != nil {
			return all, err
		}
		switch {
		case kind == 0 && strings.HasPrefix(text, "OK"):
			all[i] = onceAnswer{Answer: judge.OK, sent: sent, place: strings.TrimPrefix(text, "OK")}
		case kind == 1 && !strings.Contains(text, "in doubt"):
			all[i] = onceAnswer{Answer: judge.Refused, sent: sent, why: text}
		default:
			all[i].why = text
		}
	}
	return all, nil
}

// onceAnswer is an answer with what it says of the first place of the message.
type onceAnswer struct {
	judge.Answer
	sent     time.Duration
	place    string // "": it says nothing
	repeated bool   // "recognised", over HTTP
	fresh    bool   // not recognised, over HTTP
	why      string
}

// overHTTP publishes a body.
func overHTTP(client *http.Client, url, id, body string) onceAnswer {
	sent := record.Now()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		panic(err) // the address is ours
	}
	if id != "" {
		r.Header.Set("X-Nsq-Message-Id", id)
	}
	resp, err := client.Do(r)
	if err != nil {
		return onceAnswer{Answer: judge.InDoubt, sent: sent, why: err.Error()}
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode == http.StatusOK:
		return onceAnswer{Answer: judge.OK, sent: sent, repeated: resp.Header.Get("X-Nsq-Duplicate") == "true"}
	case resp.StatusCode == http.StatusGatewayTimeout || resp.StatusCode == http.StatusInternalServerError:
		return onceAnswer{Answer: judge.InDoubt, sent: sent, why: string(text)}
	}
	return onceAnswer{Answer: judge.Refused, sent: sent, why: fmt.Sprintf("%d %s", resp.StatusCode, text)}
}
