// Package webui is a page for operators at /ui: brokers, topics, channels and
// what is wrong with them, drawn anew every two seconds by the browser.
//
// It only shows; nothing can be changed from it. The page is one file without
// anything from elsewhere, so that it works on a network without a way out.
//
// # Invariants
//
//  1. A broker's statistics are fetched from addresses that the cluster's own
//     metadata names, never from one that a request names.
//  2. A broker that does not answer costs its numbers, not the page.
package webui

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
)

//go:embed page.html
var page []byte

const (
	// askTimeout bounds the wait for one broker's statistics.
	askTimeout = time.Second
	// answerBytes bounds what one broker may answer.
	answerBytes = 64 << 20
)

// Handler serves the page and what it reads.
type Handler struct {
	directory edge.Directory
	client    *http.Client
}

// New makes a handler.
func New(d edge.Directory) *Handler {
	return &Handler{directory: d, client: &http.Client{Timeout: askTimeout}}
}

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
	o := Overview{Cluster: h.directory.Cluster(), Topics: []edge.TopicStats{}, Silent: []string{}}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, b := range o.Cluster.Brokers {
		if !b.Alive {
			continue
		}
		asked.Go(func() {
			topics, err := h.ask(ctx, b.HTTPAddress)
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

func (h *Handler) ask(ctx context.Context, address string) ([]edge.TopicStats, error) {
	u := url.URL{Scheme: "http", Host: address, Path: "/stats", RawQuery: "format=json&include_clients=false&include_mem=false"}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	var answer struct {
		Topics []edge.TopicStats `json:"topics"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, answerBytes)).Decode(&answer)
	return answer.Topics, err
}
