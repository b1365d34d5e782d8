package lookup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
)

const (
	// maxAnswer bounds the answer of a daemon over HTTP in bytes.
	maxAnswer = 1 << 20
	// maxChannels bounds the channels of a topic that the daemons can make this broker create.
	maxChannels = 256
)

// Channels queries every daemon over HTTP for the channels of a topic. They must exist before the first message of a
// new topic. It returns the sorted channels of all answers, even if some daemons did not answer: only valid names, and
// at most maxChannels. It follows no redirect: a daemon could direct the broker's requests to another service.
func (r *Registrar) Channels(ctx context.Context, topic string) ([]string, error) {
	dialer := &net.Dialer{Timeout: cmp.Or(r.opts.ConnectTimeout, 2*time.Second)}
	client := &http.Client{
		Timeout:   cmp.Or(r.opts.RequestTimeout, 5*time.Second),
		Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true, MaxResponseHeaderBytes: maxExchange},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	var mu sync.Mutex
	var all []string
	var failed error
	var queries sync.WaitGroup
	for _, p := range r.peers() {
		address := p.http.Load()
		if address == nil {
			continue // no connection yet: its HTTP address is unknown
		}
		queries.Go(func() { // in parallel: a daemon that hangs must not delay the others
			channels, err := ask(ctx, client, "http://"+*address+"/channels?topic="+url.QueryEscape(topic))
			mu.Lock()
			defer mu.Unlock()
			all = append(all, channels...)
			failed = errors.Join(failed, err)
		})
	}
	queries.Wait()
	all = slices.DeleteFunc(all, func(channel string) bool { return !api.ValidName(channel) })
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) > maxChannels {
		failed = errors.Join(failed, fmt.Errorf("lookup: the daemons name %d channels, this broker takes %d", len(all), maxChannels))
		all = all[:maxChannels]
	}
	return all, failed
}

func ask(ctx context.Context, client *http.Client, address string) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/vnd.nsq; version=1.0")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("lookup: %s: status %d", address, resp.StatusCode)
	}
	var answer struct {
		Channels []string `json:"channels"`
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer)
	return answer.Channels, err
}
