package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	pollEvery = 20 * time.Millisecond
	// maxReason bounds the bytes that are read of a reason.
	maxReason = 4 << 10
	// logEnd is how many bytes at the end of a log are searched for its last error.
	logEnd = 64 << 10
)

// ErrEnded means that a broker's process ended before it was ready.
var ErrEnded = errors.New("ended right after its start")

// State is the answer of a broker's /readyz. Answers is true if a process answers there.
type State struct {
	Ready, Answers bool
	Why            string // reason why the broker is not ready
}

// Ready waits until brokers (all, without names) answer /readyz with 200. It returns ErrEnded
// if one of them has ended: a broker that cannot start, for example because its port is in
// use, will not become ready.
func (c *Cluster) Ready(ctx context.Context, only ...string) error {
	return c.until(ctx, func(s State) bool { return s.Ready }, only)
}

// Up waits until brokers answer /readyz at all. They run, and may wait for other brokers.
func (c *Cluster) Up(ctx context.Context, only ...string) error {
	return c.until(ctx, func(s State) bool { return s.Answers }, only)
}

func (c *Cluster) until(ctx context.Context, ok func(State) bool, only []string) error {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() { // ends with until
		for ctx.Err() == nil {
			if len(c.Dead(only...)) > 0 {
				cancel()
			}
			time.Sleep(pollEvery)
		}
	})
	for _, b := range c.Brokers {
		if !among(only, b.Name) {
			continue
		}
		if err := await(ctx, b.HTTP, ok); err != nil {
			if dead := c.Dead(only...); len(dead) > 0 {
				return c.ended(dead)
			}
			return fmt.Errorf("devcluster: %s (%s) is not ready: %w; see %s.log", b.Name, b.HTTP, err, b.DataDir)
		}
	}
	return nil
}

// ended returns why brokers did not start, with the last error of their logs.
func (c *Cluster) ended(names []string) error {
	var errs []error
	for _, name := range names {
		log := c.LogFile(name)
		err := fmt.Errorf("devcluster: %s %w; see %s", name, ErrEnded, log)
		if last := lastError(log); last != "" {
			err = fmt.Errorf("%w, its last error: %s", err, last)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// LogFile returns the path of a broker's log.
func (c *Cluster) LogFile(name string) string { return filepath.Join(c.cfg.DataDir, name+".log") }

// lastError returns the error in the last line of a log, "" if the last line is no error.
func lastError(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err != nil || size == 0 {
		return ""
	} else if _, err := f.Seek(max(0, size-logEnd), io.SeekStart); err != nil {
		return ""
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return ""
	}
	lines := slices.Collect(bytes.Lines(text))
	for len(lines) > 1 && bytes.HasPrefix(lines[len(lines)-1], []byte("nsqd --help-all ")) { // it follows the error of the command line
		lines = lines[:len(lines)-1]
	}
	last := string(lines[len(lines)-1])
	if at := strings.Index(last, "ERROR: "); at >= 0 {
		return strings.TrimSpace(last[at+len("ERROR: "):])
	}
	if strings.HasPrefix(last, "nsqd: ") { // of the command line
		return strings.TrimSpace(strings.TrimPrefix(last, "nsqd: "))
	}
	return ""
}

// WaitReady waits until the broker at an HTTP address is ready.
func WaitReady(ctx context.Context, address string) error {
	return await(ctx, address, func(s State) bool { return s.Ready })
}

func await(ctx context.Context, address string, ok func(State) bool) error {
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	for {
		s := ask(client, address)
		if ok(s) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s (%w)", s.Why, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// State requests /readyz of a broker.
func (c *Cluster) State(name string) (State, error) {
	b, err := c.Broker(name)
	if err != nil {
		return State{}, err
	}
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	return ask(client, b.HTTP), nil
}

func ask(client *http.Client, address string) State {
	resp, err := client.Get("http://" + address + "/readyz")
	if err != nil {
		return State{Why: err.Error()}
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return State{Ready: true, Answers: true}
	}
	why, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason)) // a part of the reason is enough
	return State{Answers: true, Why: string(bytes.TrimSpace(why))}
}

// Metadata returns the number of running members of the embedded etcd, and the names of the
// others. members is 0 with an external etcd.
func (c *Cluster) Metadata() (members int, missing []string) {
	if len(c.Brokers) == 0 {
		return 0, nil
	}
	args, err := c.Args(c.Brokers[0].Name)
	if err != nil || !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--etcd-initial-cluster=") }) {
		return 0, nil
	}
	return len(c.Brokers), c.Dead()
}
