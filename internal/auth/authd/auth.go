// Package authd queries an NSQ auth service for the permissions of a client.
//
// It does not decide when to query (internal/auth/guard does) and has no cache: a State has its own expiry.
//
// # Invariants
//
//  1. An answer with an unknown permission, an invalid pattern or no lifetime is an error: it allows nothing, and it denies
//     nothing.
//  2. Every configured address is tried once, from a random start, before a query fails.
//  3. No error contains the secret, although the URL of a GET request does.
package authd

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/observe/redact"
)

const (
	maxTTL       = 365 * 24 * 3600 // longest lifetime of an answer in seconds: a year
	maxAnswer    = 4 << 20         // bytes of an answer
	maxRedirects = 10
)

var (
	// ErrInvalidAnswer means that the answer of an auth service is unusable: a status other than 200, 401 and 403, or a
	// body that is not an answer. It says nothing about the client.
	ErrInvalidAnswer = errors.New("auth: invalid answer of the auth service")
	// ErrDenied means that an auth service has answered that the client has no permissions, with the status 401 or 403.
	ErrDenied = errors.New("auth: the auth service denies the client")
)

// Request describes a client to the auth service.
type Request struct {
	RemoteIP   string
	TLS        bool
	CommonName string // of the client's certificate
	Secret     string
}

// Authorization allows permissions on the topics and channels that match. Patterns are not anchored.
type Authorization struct {
	Topic       string   `json:"topic"`
	Channels    []string `json:"channels"`
	Permissions []string `json:"permissions"`

	topic    *regexp.Regexp
	channels []*regexp.Regexp
}

// State is the answer of the auth service for one client. It is immutable.
type State struct {
	TTL            int             `json:"ttl"` // seconds
	Identity       string          `json:"identity"`
	IdentityURL    string          `json:"identity_url"`
	Authorizations []Authorization `json:"authorizations"`

	expires time.Time
}

// Expired reports whether the auth service must be queried again.
func (s *State) Expired(now time.Time) bool { return s.ExpiredFor(now) >= 0 }

// ExpiredFor is how long ago the answer expired; negative before that.
func (s *State) ExpiredFor(now time.Time) time.Duration { return now.Sub(s.expires) }

// Allows reports whether the client may use the topic: to publish if channel is empty, else to subscribe to that channel.
func (s *State) Allows(topic, channel string) bool {
	permission := "subscribe"
	if channel == "" {
		permission = "publish"
	}
	return slices.ContainsFunc(s.Authorizations, func(a Authorization) bool {
		return slices.Contains(a.Permissions, permission) && a.topic.MatchString(topic) &&
			slices.ContainsFunc(a.channels, func(c *regexp.Regexp) bool { return c.MatchString(channel) })
	})
}

// Knows reports whether the client may do anything at all with the topic.
func (s *State) Knows(topic string) bool {
	return slices.ContainsFunc(s.Authorizations, func(a Authorization) bool { return len(a.Permissions) > 0 && a.topic.MatchString(topic) })
}

// Parse reads the body of an answer that arrives now, or returns ErrInvalidAnswer.
func Parse(body []byte, now time.Time) (*State, error) {
	s := &State{}
	if err := json.Unmarshal(body, s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidAnswer, err)
	}
	if s.TTL <= 0 {
		return nil, fmt.Errorf("%w: ttl %d", ErrInvalidAnswer, s.TTL)
	}
	for i := range s.Authorizations {
		if err := s.Authorizations[i].compile(); err != nil {
			return nil, err
		}
	}
	s.expires = now.Add(time.Duration(min(s.TTL, maxTTL)) * time.Second)
	return s, nil
}

func (a *Authorization) compile() error {
	for _, p := range a.Permissions {
		if p != "subscribe" && p != "publish" {
			return fmt.Errorf("%w: unknown permission %q", ErrInvalidAnswer, p)
		}
	}
	var err error
	if a.topic, err = regexp.Compile(a.Topic); err != nil {
		return fmt.Errorf("%w: topic %q: %w", ErrInvalidAnswer, a.Topic, err)
	}
	for _, pattern := range a.Channels {
		c, err := regexp.Compile(pattern)
		if err != nil {
			return fmt.Errorf("%w: channel %q: %w", ErrInvalidAnswer, pattern, err)
		}
		a.channels = append(a.channels, c)
	}
	return nil
}

// Client queries auth services.
type Client struct {
	o    config.AuthService
	http *http.Client
}

// New makes a client. Each address is host:port (queried at /auth) or a whole URL. The timeouts apply to each address. tls is
// for https addresses; nil = Go's defaults.
func New(o config.AuthService, tls *tls.Config) *Client {
	dialer := &net.Dialer{Timeout: o.HTTPConnectTimeout}
	return &Client{o: o, http: &http.Client{
		Timeout:   o.HTTPRequestTimeout,
		Transport: &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: tls, DisableKeepAlives: true},
		// Redirects are followed, as stock nsqd does. net/http would give the target the URL with the secret as Referer.
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			req.Header.Del("Referer")
			if len(via) >= maxRedirects {
				return errors.New("too many redirects")
			}
			return nil
		},
	}}
}

// Query tries the addresses, starting at a random one, until one answers with permissions. The error is ErrDenied if
// one of them has denied the client.
func (c *Client) Query(ctx context.Context, r Request) (*State, error) {
	n := len(c.o.AuthHTTPAddress)
	if n == 0 {
		return nil, errors.New("auth: no address is configured")
	}
	var failed error
	start := rand.IntN(n)
	for i := range n {
		address := c.o.AuthHTTPAddress[(start+i)%n]
		s, err := c.ask(ctx, address, r)
		if err == nil {
			return s, nil
		}
		failed = errors.Join(failed, fmt.Errorf("auth: %s: %w", redact.Address(address), err))
	}
	return nil, failed
}

func (c *Client) ask(ctx context.Context, address string, r Request) (*State, error) {
	req, err := c.request(ctx, address, r)
	if err != nil {
		return nil, withoutURL(err)
	}
	req.Header.Set("Accept", "application/vnd.nsq; version=1.0")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return Parse(body, time.Now())
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("%w: status %d", ErrDenied, resp.StatusCode)
	}
	return nil, fmt.Errorf("%w: status %d", ErrInvalidAnswer, resp.StatusCode)
}

// withoutURL is the cause of a failed request: the URL that net/http puts before it has the secret in its query.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

func (c *Client) request(ctx context.Context, address string, r Request) (*http.Request, error) {
	target := address
	if !strings.Contains(address, "://") {
		target = "http://" + address + "/auth"
	}
	u, err := url.Parse(target)
	if err != nil {
		return nil, errors.New("the address is not a valid URL") // the error quotes parts of it
	}
	values := url.Values{
		"remote_ip": {r.RemoteIP}, "tls": {strconv.FormatBool(r.TLS)},
		"secret": {r.Secret}, "common_name": {r.CommonName},
	}
	if !strings.EqualFold(c.o.AuthHTTPMethod, http.MethodPost) {
		query := u.Query()
		maps.Copy(query, values)
		u.RawQuery = query.Encode()
		return http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	}
	body, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, err
}
