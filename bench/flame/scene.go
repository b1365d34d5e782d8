package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/pprof/profile"

	"github.com/lockstepmq/lockstep/internal/bench"
	"github.com/lockstepmq/lockstep/internal/devcluster"
	"github.com/lockstepmq/lockstep/internal/edge"
)

const (
	ready = time.Minute // until which a new cluster serves
	topic = "flame"
)

// scene is a cluster with one topic of one partition.
type scene struct {
	cluster          *devcluster.Cluster
	leader, follower devcluster.Broker
}

func start(ctx context.Context, dir, nsqd string, basePort int) (*scene, error) {
	nsqd, err := filepath.Abs(nsqd)
	if err != nil {
		return nil, err
	}
	c, err := devcluster.New(devcluster.Config{Nodes: 3, DataDir: dir, BasePort: basePort, NSQD: nsqd, Tied: true})
	if err != nil {
		return nil, err
	}
	s := &scene{cluster: c}
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	if err = c.StartAll(); err == nil {
		err = c.Ready(ctx)
	}
	if err == nil {
		err = s.cast(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *scene) stop() error { return s.cluster.StopAll(15 * time.Second) }

// cast makes the topic and finds who leads it.
func (s *scene) cast(ctx context.Context) error {
	b := s.cluster.Brokers[0]
	if err := call(ctx, b, http.MethodPost, "/topic/create?partitions=1&topic="+topic, io.Discard); err != nil {
		return err
	}
	var answer bytes.Buffer
	if err := call(ctx, b, http.MethodGet, "/v1/cluster", &answer); err != nil {
		return err
	}
	var v edge.ClusterView
	if err := json.Unmarshal(answer.Bytes(), &v); err != nil {
		return err
	}
	for _, x := range v.Topics {
		if x.Topic != topic {
			continue
		}
		for _, b := range s.cluster.Brokers {
			if b.Name == string(x.Partitions[0].Leader) {
				s.leader = b
			} else {
				s.follower = b
			}
		}
	}
	if s.leader.HTTP == "" {
		return errors.New("the topic has no leader")
	}
	return nil
}

// during measures a workload with clients at the leader, and profiles brokers
// from when it has begun.
func (s *scene) during(ctx context.Context, w bench.Workload, took time.Duration, brokers ...devcluster.Broker) ([]*profile.Profile, error) {
	begun, measured := make(chan struct{}), make(chan error, 1)
	begin := sync.OnceFunc(func() { close(begun) })
	go func() { // ends with the workload, or ctx
		_, err := bench.Measure(ctx, w, &bench.Config{
			Addresses: []string{s.leader.TCP}, Topic: topic, Progress: func(int) { begin() },
			Bounds: bench.Bounds{Scale: 1, Limit: took + time.Second, Timeout: time.Minute + 2*took},
		})
		begin()
		measured <- err
	}()
	<-begun
	profiles, errs := make([]*profile.Profile, len(brokers)), make([]error, len(brokers))
	var group sync.WaitGroup
	for i, b := range brokers {
		group.Go(func() { profiles[i], errs[i] = cpu(ctx, b, took) })
	}
	group.Wait()
	return profiles, errors.Join(append(errs, <-measured)...)
}

// cpu asks a broker where its processor time goes.
func cpu(ctx context.Context, b devcluster.Broker, took time.Duration) (*profile.Profile, error) {
	var answer bytes.Buffer
	if err := call(ctx, b, http.MethodGet, fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(took.Seconds())), &answer); err != nil {
		return nil, err
	}
	return profile.Parse(&answer)
}

// call copies a broker's answer.
func call(ctx context.Context, b devcluster.Broker, method, path string, to io.Writer) error {
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
