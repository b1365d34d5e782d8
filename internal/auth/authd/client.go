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
	"strconv"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/observe/redact"
)

// maxAnswer bounds the answer of an auth service in bytes.
const maxAnswer = 4 << 20

// maxRedirects bounds the redirects of a query.
const maxRedirects = 10

// Client queries auth services.
type Client struct {
	o    config.AuthService
	http *http.Client
}

// New makes a client. Each address is host:port (queried at /auth) or a whole URL, and has the timeouts for itself. tls is
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

// Query tries the addresses from a random one on until one answers with permissions. The error is ErrDenied if one of them has
// denied the client.
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
		return nil, errors.New("the address is no valid URL") // the error quotes parts of it
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
