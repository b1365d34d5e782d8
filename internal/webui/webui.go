// Package webui is a page for operators at /ui: brokers, topics, channels and
// what is wrong with them, drawn anew every two seconds by the browser.
//
// It only shows; nothing can be changed from it. The page is one file without
// anything from elsewhere, so that it works on a network without a way out.
//
// A broker that does not answer costs its numbers, not the page.
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
	"github.com/lockstepmq/lockstep/internal/ident"
)

//go:embed page.html
var page []byte

// askTimeout bounds the wait for one broker's statistics.
const askTimeout = time.Second

// Cluster is what the page needs of the broker that serves it.
type Cluster interface {
	Cluster() edge.ClusterView
	// TopicsLedBy gives the statistics of what a broker leads.
	TopicsLedBy(ctx context.Context, n ident.Node) ([]edge.TopicStats, error)
}

// Handler serves the page and what it reads.
type Handler struct{ cluster Cluster }

// New makes a handler.
func New(c Cluster) *Handler { return &Handler{cluster: c} }

// Page is GET /ui.
func (h *Handler) Page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'")
	_, _ = w.Write(page) // a browser that left needs no page
}

// Overview is what the page draws.
type Overview struct {
	Cluster edge.ClusterView  `json:"cluster"`
	Topics  []edge.TopicStats `json:"topics"` // as their leaders tell; a topic may be there once for each of them
	Silent  []string          `json:"silent"` // live brokers that did not answer
}

// Data is GET /ui/data.
func (h *Handler) Data(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(h.overview(r.Context())) // a browser that left needs no data
}

// overview asks all live brokers at once: each reports what it leads.
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
	return o
}
