package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// apiTimeout bounds one request to a broker's HTTP API.
const apiTimeout = 15 * time.Second

// api is where a broker of the cluster answers: its HTTPS port if TLS is wanted,
// "" if it has none.
func (t *target) api(b edge.BrokerView) string {
	if t.security.config != nil {
		return b.HTTPSAddress
	}
	return b.HTTPAddress
}

// others are where the other brokers answer that run.
func (t *target) others(v edge.ClusterView, but string) (addresses []string) {
	for _, b := range v.Brokers {
		if at := t.api(b); b.Alive && at != "" && at != but {
			addresses = append(addresses, at)
		}
	}
	return addresses
}

// call makes one request and returns the body; any answer but 200 is an error
// with the broker's own words.
func (t *target) call(ctx context.Context, method, address, path string, query url.Values) ([]byte, error) {
	if address == "" {
		return nil, errors.New("this broker has no HTTPS port")
	}
	u := url.URL{Scheme: "http", Host: address, Path: path, RawQuery: query.Encode()}
	if t.security.config != nil {
		u.Scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}

// get decodes a JSON answer into v.
func (t *target) get(ctx context.Context, address, path string, query url.Values, v any) error {
	body, err := t.call(ctx, http.MethodGet, address, path, query)
	if err != nil {
		return err
	}
	return decode(body, path, v)
}

func decode(body []byte, path string, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s: the answer is not what a Lockstep broker says: %w", path, err)
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
