// Package webui is the web console at /ui. Its TypeScript sources are in src; make ui builds the
// files in dist, which are part of the repository and of the binary, so that no other build needs
// npm. TestDistIsBuiltFromTheSources compares them.
//
// Invariants:
//
//  1. The console asks no other host: it works on a network without access to the internet.
//  2. Its files hold nothing about the cluster, so that a browser gets them before a sign-in. The
//     data come from the routes of internal/frontend/httpapi, with the rights of each.
//  3. No script or style stands in the page itself: the Content-Security-Policy refuses them.
//
// /ui/data is the overview for scripts of earlier builds. If a broker does not answer, it shows the
// others without its numbers.
package webui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

// askTimeout bounds the wait for one broker's statistics.
const askTimeout = time.Second

// Cluster is the part of the serving broker that the overview needs.
type Cluster interface {
	Cluster() api.ClusterView
	// TopicsLedBy returns the statistics of the topics that a broker leads.
	TopicsLedBy(ctx context.Context, n ident.Node) ([]api.TopicStats, error)
}

// Handler serves the overview for scripts.
type Handler struct {
	cluster Cluster
	own     func(context.Context) map[ident.Node]health.Own
}

// New makes a handler. own gives the brokers' reports on themselves.
func New(c Cluster, own func(context.Context) map[ident.Node]health.Own) *Handler {
	return &Handler{c, own}
}

// Overview is the answer of /ui/data.
type Overview struct {
	Cluster api.ClusterView  `json:"cluster"`
	Topics  []api.TopicStats `json:"topics"` // reported by their leaders; a topic has one entry for each leader
	Silent  []string         `json:"silent"` // live brokers that did not answer
	Health  health.Report    `json:"health"`
}

// Data is GET /ui/data.
func (h *Handler) Data(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(h.overview(r.Context())) // the client may have left
}

// overview queries all live brokers in parallel: each reports the topics that it leads.
func (h *Handler) overview(ctx context.Context) Overview {
	o := Overview{Cluster: h.cluster.Cluster(), Topics: []api.TopicStats{}, Silent: []string{}}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, b := range o.Cluster.Brokers {
		if !b.Alive {
			continue
		}
		asked.Go(func() {
			topics, err := h.cluster.TopicsLedBy(ctx, b.Name)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				o.Silent = append(o.Silent, fmt.Sprintf("%s: %v", b.Name, err))
				return
			}
			o.Topics = append(o.Topics, topics...)
		})
	}
	asked.Wait()
	o.Health = health.Assess(o.Cluster, o.Silent, h.own(ctx))
	return o
}
