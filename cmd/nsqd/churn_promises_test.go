package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// TestPromiseConnectionChurn: while other clients connect and disconnect as fast as possible, puts take less than 2 s.
func TestPromiseConnectionChurn(t *testing.T) {
	b := start(t)
	c := b.dial()
	alone := putTimes(c, 200)
	var beside []time.Duration
	began := time.Now()
	b.churn(10_000, func() { beside = append(beside, putTimes(c, 50)...) })
	t.Logf("10,000 connections in %v; puts alone p50 %v, p99 %v; beside %v, %v", time.Since(began),
		quantile(alone, 0.5), quantile(alone, 0.99), quantile(beside, 0.5), quantile(beside, 0.99))
	require.Less(t, quantile(beside, 0.99), env.Within(t, 2*time.Second))
}

func putTimes(c *client, n int) []time.Duration {
	c.t.Helper()
	times := make([]time.Duration, n)
	for i := range times {
		began := time.Now()
		c.put("orders", "x")
		times[i] = time.Since(began)
	}
	return times
}

func quantile(times []time.Duration, q float64) time.Duration {
	slices.Sort(times)
	return times[int(q*float64(len(times)-1))].Round(time.Microsecond)
}
