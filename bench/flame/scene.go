package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/pprof/profile"

	"github.com/lockstepmq/lockstep/bench/lockstep"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/bench"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
)

const topic = "flame"

// scene is a cluster with one topic of one partition.
type scene struct {
	*lockstep.Cluster
	leader, follower devcluster.Broker
}

// start starts a cluster, creates the topic and finds its leader.
func start(ctx context.Context, dir, nsqd string, basePort int) (*scene, error) {
	c, err := lockstep.Start(ctx, nsqd, dir, basePort)
	if err != nil {
		return nil, err
	}
	s := &scene{Cluster: c}
	if err = c.Post(ctx, "/topic/create?partitions=1&topic="+topic); err == nil {
		err = s.cast(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return s, nil
}

func (s *scene) cast(ctx context.Context) error {
	v, err := s.View(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(v.Topics, func(x api.TopicView) bool { return x.Topic == topic })
	if i < 0 {
		return errors.New("the topic does not exist")
	}
	for _, b := range s.Brokers {
		if b.Name == string(v.Topics[i].Partitions[0].Leader) {
			s.leader = b
		} else {
			s.follower = b
		}
	}
	if s.leader.HTTP == "" {
		return errors.New("the topic has no leader")
	}
	return nil
}

// during runs a workload with clients at the leader, and profiles brokers from its beginning
// on.
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

// cpu requests the processor profile of a broker.
func cpu(ctx context.Context, b devcluster.Broker, took time.Duration) (*profile.Profile, error) {
	var answer bytes.Buffer
	if err := lockstep.Call(ctx, b, http.MethodGet, fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(took.Seconds())), &answer); err != nil {
		return nil, err
	}
	return profile.Parse(&answer)
}
