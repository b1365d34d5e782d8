package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstepmq/lockstep/bench/child"
)

const (
	loopback = "127.0.0.1"
	servers  = 3
	ready    = time.Minute // limit for the start of a cluster
	poll     = 50 * time.Millisecond
)

type clusterConfig struct {
	dir        string
	basePort   int // clients of server i: + i; servers among themselves: + 10 + i
	syncAlways bool
}

// cluster is three servers, each in its own process.
type cluster struct {
	clusterConfig
	child.Processes
	nc *nats.Conn
	js jetstream.JetStream
}

// start starts the servers and waits until they accept streams.
func start(ctx context.Context, cfg clusterConfig) (*cluster, error) {
	c := &cluster{clusterConfig: cfg}
	for i := range servers {
		if err := c.startOne(i); err != nil {
			c.stop()
			return nil, err
		}
	}
	if err := c.awaitLeader(ctx); err != nil {
		c.stop()
		return nil, fmt.Errorf("three servers with ports from %d: %w", cfg.basePort, err)
	}
	return c, nil
}

func (c *cluster) startOne(i int) error {
	var routes []string
	for k := range servers {
		routes = append(routes, fmt.Sprintf("nats://%s:%d", loopback, c.basePort+10+k))
	}
	if err := os.MkdirAll(c.serverDir(i), 0o755); err != nil {
		return err
	}
	return c.Start([]string{serverCommand,
		"-name", fmt.Sprintf("n%d", i), "-dir", c.serverDir(i), fmt.Sprintf("-sync-always=%t", c.syncAlways),
		"-port", fmt.Sprint(c.basePort + i), "-cluster-port", fmt.Sprint(c.basePort + 10 + i), "-routes", strings.Join(routes, ",")}, nil)
}

func (c *cluster) serverDir(i int) string { return filepath.Join(c.dir, fmt.Sprint(i)) }

func (c *cluster) url(i int) string {
	return fmt.Sprintf("nats://%s:%d", loopback, c.basePort+i%servers)
}

func (c *cluster) dirs() (dirs []string) {
	for i := range servers {
		dirs = append(dirs, c.serverDir(i))
	}
	return dirs
}

// awaitLeader waits until a stream with three replicas can be created.
func (c *cluster) awaitLeader(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	err := until(ctx, func() (err error) {
		if c.nc == nil {
			if c.nc, err = nats.Connect(c.url(0)); err != nil {
				return err
			}
			if c.js, err = jetstream.New(c.nc); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second) // the servers never answer a request that is too early
		defer cancel()
		_, err = c.create(ctx, "ready")
		return err
	})
	if err != nil {
		return err
	}
	return c.js.DeleteStream(ctx, "ready")
}

// create creates a stream for the subject of its name.
func (c *cluster) create(ctx context.Context, name string) (jetstream.Stream, error) {
	return c.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage, Replicas: servers,
	})
}

// inSync counts the replicas of a stream that have all its messages, after a while in which
// the others may catch up: the followers of a Raft group may lag.
func (c *cluster) inSync(ctx context.Context, name string) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = until(ctx, func() error {
		s, err := c.js.Stream(ctx, name)
		if err != nil {
			return err
		}
		n = 1
		for _, peer := range s.CachedInfo().Cluster.Replicas {
			if peer.Current {
				n++
			}
		}
		if n < servers {
			return errors.New("a replica is behind")
		}
		return nil
	})
	if n > 0 {
		return n, nil
	}
	return 0, err
}

// until repeats f until it succeeds; at the end of ctx it returns f's last error.
func until(ctx context.Context, f func() error) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// stop ends the servers and waits for their end.
func (c *cluster) stop() {
	if c.nc != nil {
		c.nc.Close()
	}
	c.Stop()
}
