// Package lockstep starts a new Lockstep cluster for a measurement and sends requests to its
// brokers over HTTP.
package lockstep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
)

const (
	// Brokers is the number of brokers in a cluster.
	Brokers = 3

	ready = time.Minute // limit for the start of a cluster
)

// Cluster is brokers, each in its own process.
type Cluster struct{ *devcluster.Cluster }

// Start starts the brokers of an nsqd, with these flags, and waits until they serve.
func Start(ctx context.Context, nsqd, dir string, basePort int, flags ...string) (*Cluster, error) {
	nsqd, err := filepath.Abs(nsqd)
	if err != nil {
		return nil, err
	}
	d, err := devcluster.New(devcluster.Config{
		Nodes: Brokers, DataDir: dir, BasePort: basePort, NSQD: nsqd, Args: flags, Tied: true,
	})
	if err != nil {
		return nil, err
	}
	c := &Cluster{d}
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	if err = c.StartAll(); err == nil {
		err = c.Ready(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Stop stops the brokers and waits for their end.
func (c *Cluster) Stop() error { return c.StopAll(15 * time.Second) }

// Post sends a POST to one of the brokers.
func (c *Cluster) Post(ctx context.Context, path string) error {
	return Call(ctx, c.Brokers[0], http.MethodPost, path, io.Discard)
}

// View returns the view of the cluster at one of the brokers.
func (c *Cluster) View(ctx context.Context) (v api.ClusterView, err error) {
	var answer bytes.Buffer
	if err := Call(ctx, c.Brokers[0], http.MethodGet, "/v1/cluster", &answer); err != nil {
		return v, err
	}
	return v, json.Unmarshal(answer.Bytes(), &v)
}

// Call sends a request to a broker and copies its answer.
func Call(ctx context.Context, b devcluster.Broker, method, path string, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+b.HTTP+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	_, err = io.Copy(to, resp.Body)
	return err
}
