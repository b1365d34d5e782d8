package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

var (
	// errNoRight: the token is good, but its user may not list the brokers.
	errNoRight  = errors.New("the right to list the brokers is missing")
	errNotFound = errors.New("not found")
)

// maxAnswer bounds the answer of a broker to discovery, in bytes.
const maxAnswer = 16 << 20

// keepDiscovering asks for the brokers in intervals, and soon after one failed.
func (c *Client) keepDiscovering() {
	tick := time.NewTicker(c.o.DiscoverEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.ask:
			if sleep(c.ctx, time.Second) != nil { // failures come together
				return
			}
		case <-c.ctx.Done():
			return
		}
		c.mu.Lock()
		topic := c.mu.topic
		c.mu.Unlock()
		_ = c.discover(c.ctx, topic) // without an answer the known brokers stay
	}
}

// discover asks one URL after the other for the brokers: GET /nodes, which takes the right to
// observe, else GET /lookup, which takes any right on the topic. The first list counts. Known
// brokers that /nodes lacks are dropped, unless the application has given them.
func (c *Client) discover(ctx context.Context, topic string) error {
	var last error
	for _, base := range c.urls {
		found, err := c.list(ctx, base+"/nodes")
		all := err == nil
		if errors.Is(err, errNoRight) && topic != "" {
			if found, err = c.list(ctx, base+"/lookup?topic="+url.QueryEscape(topic)); errors.Is(err, errNotFound) {
				err = &Error{Op: "discover", Topic: topic, Broker: base, kinds: []error{ErrUnreachable},
					Text: "the topic does not exist, and the token may not list the brokers: give the address of a TCP port"}
			}
		}
		if err == nil && len(found) > 0 {
			c.learn(found, all)
			return nil
		}
		if err != nil && !errors.Is(last, errNoRight) {
			last = err
		}
	}
	return last
}

// list reads the TCP addresses of one list of brokers.
func (c *Client) list(ctx context.Context, from string) ([]string, error) {
	fail := func(kind error, text string, cause error) error {
		return &Error{Op: "discover", Broker: from, Text: text, kinds: []error{kind}, cause: cause}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, fail(ErrInvalid, "", err)
	}
	if c.o.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.o.Token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, fail(ErrUnreachable, "", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, fail(ErrUnreachable, "", err)
	case resp.StatusCode == http.StatusForbidden:
		return nil, fail(ErrUnauthorized, "", errNoRight)
	case resp.StatusCode == http.StatusNotFound:
		return nil, fail(ErrUnreachable, resp.Status, errNotFound)
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusTooManyRequests:
		return nil, fail(ErrUnauthorized, resp.Status, nil)
	case resp.StatusCode != http.StatusOK:
		return nil, fail(ErrUnreachable, resp.Status, nil)
	}
	var answer struct {
		Producers []struct {
			BroadcastAddress string `json:"broadcast_address"`
			TCPPort          int    `json:"tcp_port"`
		} `json:"producers"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fail(ErrUnreachable, "", fmt.Errorf("the answer is not a list of brokers: %w", err))
	}
	var found []string
	for _, p := range answer.Producers {
		found = append(found, net.JoinHostPort(p.BroadcastAddress, strconv.Itoa(p.TCPPort)))
	}
	return found, nil
}

// learn adds brokers that discovery has found. all: the list has every broker that is alive.
func (c *Client) learn(found []string, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.addresses = slices.DeleteFunc(c.mu.addresses, func(a *address) bool {
		return all && !a.given && !slices.Contains(found, a.hostPort)
	})
	for _, hostPort := range found {
		if !slices.ContainsFunc(c.mu.addresses, func(a *address) bool { return a.hostPort == hostPort }) {
			c.mu.addresses = append(c.mu.addresses, &address{hostPort: hostPort})
		}
	}
}
