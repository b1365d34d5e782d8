package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/internal/nsqclient"
)

// Credit is the RDY of every consumer.
const Credit = 250

// backlog publishes n messages for each channel and returns the tasks of their consumers.
func (r *nsq) backlog(ctx context.Context, n int) ([]Task, int, error) {
	var tasks []Task
	channels := max(r.w.Channels, 1)
	for ch := range channels {
		name := fmt.Sprintf("bench%d", ch)
		c, err := r.subscribe(0, r.cfg.Topic, name) // RDY stays 0: this only creates the channel
		if err != nil {
			return nil, 0, err
		}
		defer c.Close()
		for i := range r.w.Connections {
			tasks = append(tasks, r.consumer(ch+i, r.cfg.Topic, name, nil))
		}
	}
	const per = 400 // a multiple of the multi-put, the same on each connection
	n = (n + per - 1) / per * per
	n, err := r.fill(ctx, n)
	return tasks, n * channels, err
}

// mixed returns the tasks of producers and consumers of one topic. The finished messages
// count.
func (r *nsq) mixed(n int) ([]Task, int) {
	puts := n / r.w.Connections
	var tasks []Task
	for i := range r.w.Connections {
		tasks = append(tasks, r.publisher(i, puts, func(int) {}))
	}
	for i := range r.w.Consumers {
		tasks = append(tasks, r.consumer(i, r.cfg.Topic, "bench", nil))
	}
	return tasks, puts * r.w.Connections
}

func (r *nsq) subscribe(i int, topic, channel string) (*nsqclient.Conn, error) {
	buffer := none
	if r.w.Kind == Consume {
		buffer = usual
	}
	c, err := r.cfg.dial(i, buffer)
	if err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(c.W, "SUB %s %s\n", topic, channel)
	if err = c.W.Flush(); err == nil {
		_, err = c.Response()
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// consumer receives messages and finishes each until all of the repeat are done. seen, if not
// nil, returns the function that receives each body.
func (r *nsq) consumer(i int, topic, channel string, seen func() func(body []byte)) Task {
	return func(_ context.Context, ready chan<- struct{}, begin <-chan struct{}) error {
		c, err := r.subscribe(i, topic, channel)
		if err != nil {
			return err
		}
		defer c.Close()
		look := func([]byte) {}
		if seen != nil {
			look = seen()
		}
		ready <- struct{}{}
		<-begin
		_, _ = fmt.Fprintf(c.W, "RDY %d\n", Credit)
		if err := c.W.Flush(); err != nil {
			return err
		}
		return r.drain(c, look)
	}
}

// drain reads and finishes messages. Another consumer may receive the last one, so drain
// checks from time to time whether all are done.
func (r *nsq) drain(c *nsqclient.Conn, look func(body []byte)) error {
	const lookUp = 200 * time.Millisecond
	end := time.Now().Add(r.cfg.Timeout)
	armed := time.Time{}
	for !r.Finished() {
		// The deadline also holds within an incomplete frame: an expired deadline would fail
		// every further read at once.
		if armed.IsZero() || c.R.Buffered() == 0 && time.Since(armed) > lookUp/2 {
			armed = time.Now()
			_ = c.SetReadDeadline(armed.Add(lookUp))
		}
		kind, data, err := c.Frame()
		switch {
		case err != nil && r.Finished():
			return nil
		case err != nil && isTimeout(err) && time.Now().Before(end):
			armed = time.Time{}
			continue
		case err != nil:
			return err
		case kind == nsqclient.FrameError:
			return errors.New("the broker answered " + string(data))
		case kind != nsqclient.FrameMessage:
			_, _ = c.W.WriteString("NOP\n")
		default:
			look(data[messageHeader:])
			_, _ = c.W.WriteString("FIN ")
			_, _ = c.W.Write(data[10:messageHeader])
			_ = c.W.WriteByte('\n')
			r.Add(1)
		}
		if c.R.Buffered() < 34 {
			if err := c.W.Flush(); err != nil {
				return err
			}
		}
	}
	return c.W.Flush()
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
