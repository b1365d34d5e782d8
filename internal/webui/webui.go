// Package webui is a page for operators at /ui: brokers, topics, channels and their problems.
// The browser refreshes it every two seconds.
//
// The page is read-only. It is one file without external resources, so that it works on a
// network without access to the internet.
//
// If a broker does not answer, the page shows the others without its numbers.
package webui

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/health"
	"github.com/lockstepmq/lockstep/internal/ident"
)

//go:embed page.html
var page []byte

// askTimeout bounds the wait for one broker's statistics.
const askTimeout = time.Second

// Cluster is the part of the serving broker that the page needs.
type Cluster interface {
	Cluster() edge.ClusterView
	// TopicsLedBy returns the statistics of the topics that a broker leads.
	TopicsLedBy(ctx context.Context, n ident.Node) ([]edge.TopicStats, error)
}

// Handler serves the page and its data.
type Handler struct{ cluster Cluster }

// New makes a handler.
func New(c Cluster) *Handler { return &Handler{cluster: c} }

// Page is GET /ui.
func (h *Handler) Page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	_, _ = w.Write(page) // the client may have left
}

// Overview is the data of the page.
type Overview struct {
	Cluster edge.ClusterView  `json:"cluster"`
	Topics  []edge.TopicStats `json:"topics"` // reported by their leaders; a topic has one entry for each leader
	Silent  []string          `json:"silent"` // live brokers that did not answer
	Health  health.Report     `json:"health"`
}

// Data is GET /ui/data.
func (h *Handler) Data(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(h.overview(r.Context())) // the client may have left
}

// overview queries all live brokers in parallel: each reports the topics that it leads.
func (h *Handler) overview(ctx context.Context) Overview {
	o := Overview{Cluster: h.cluster.Cluster(), Topics: []edge.TopicStats{}, Silent: []string{}}
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
	o.Health = health.Assess(o.Cluster, o.Silent)
	return o
}
