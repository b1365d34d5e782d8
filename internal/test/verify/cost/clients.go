package cost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/internal/nsqclient"
)

const (
	bodyBytes      = 100
	backlogChannel = "cost"
	clientTimeout  = 5 * time.Minute // of a connection, with all bursts of its row
)

// clients are the connections of a row to one cluster. They stay open from burst to burst.
type clients struct {
	row    row
	topics []string
	bodies [][]byte
	all    []*connection
}

type connection struct {
	*nsqclient.Conn
	number int
	next   int // the number of its commands so far
}

// connect opens the connections of a row, spread over the addresses.
func connect(ctx context.Context, r row, addresses []string) (*clients, error) {
	c := &clients{row: r, topics: r.names(), bodies: slices.Repeat([][]byte{bytes.Repeat([]byte{'x'}, bodyBytes)}, r.batch)}
	for i := range r.connections {
		d := nsqclient.Dialer{Identify: map[string]any{"heartbeat_interval": 60000}}
		conn, err := d.Dial(ctx, addresses[i%len(addresses)], clientTimeout)
		if err != nil {
			c.close()
			return nil, err
		}
		c.all = append(c.all, &connection{Conn: conn, number: i})
		if err = conn.SetDeadline(time.Now().Add(clientTimeout)); err == nil && r.consume {
			err = subscribe(conn, c.topics[0], r.outstanding)
		}
		if err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func subscribe(c *nsqclient.Conn, topic string, ready int) error {
	_, _ = fmt.Fprintf(c.W, "SUB %s %s\n", topic, backlogChannel)
	if err := c.W.Flush(); err != nil {
		return err
	}
	if _, err := c.Response(); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(c.W, "RDY %d\n", ready)
	return c.W.Flush()
}

func (c *clients) close() {
	for _, x := range c.all {
		_ = x.Close()
	}
}

// burst runs one burst on all connections at once, and waits for it.
func (c *clients) burst() error {
	work := c.publish
	if c.row.consume {
		work = c.consume
	}
	if len(c.all) == 1 {
		return work(c.all[0])
	}
	errs := make(chan error, len(c.all))
	for _, x := range c.all {
		go func() { errs <- work(x) }() // ends with its part, or the connection's deadline
	}
	var failed error
	for range c.all {
		failed = errors.Join(failed, <-errs)
	}
	return failed
}

// publish publishes the burst of one connection.
func (c *clients) publish(x *connection) error {
	for sent, answered := 0, 0; answered < c.row.burst; {
		for sent < c.row.burst && sent-answered < c.row.outstanding {
			x.Publish(c.topics[(x.number+x.next*c.row.connections)%len(c.topics)], nil, c.bodies)
			sent, x.next = sent+1, x.next+1
		}
		if err := x.W.Flush(); err != nil {
			return err
		}
		for more := true; more; more = answered < sent && x.R.Buffered() >= 8 {
			if _, err := x.Response(); err != nil {
				return err
			}
			answered++
		}
	}
	return nil
}

// consume finishes the burst of one consumer.
func (c *clients) consume(x *connection) error {
	const messageHeader, idBegin = 26, 10
	for done := 0; done < c.row.burst; {
		kind, data, err := x.Frame()
		switch {
		case err != nil:
			return err
		case kind == nsqclient.FrameError:
			return &nsqclient.Refusal{Text: string(data)}
		case kind != nsqclient.FrameMessage:
			_, _ = x.W.WriteString("NOP\n")
		default:
			_, _ = x.W.WriteString("FIN ")
			_, _ = x.W.Write(data[idBegin:messageHeader])
			_ = x.W.WriteByte('\n')
			done++
		}
		if x.R.Buffered() < 8+messageHeader || done == c.row.burst {
			if err := x.W.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}
