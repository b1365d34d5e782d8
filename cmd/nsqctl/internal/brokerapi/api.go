// Package brokerapi is the client of the brokers' HTTP API for the commands of nsqctl. It queries one broker, or any
// that answers.
//
// It has no flags and reads no files: the caller sets up the addresses, TLS and the token. It prints nothing. Its
// only particular requests are the views of the cluster and its topics, and the list and creation of channels.
//
// # Invariants
//
//  1. A request that changes something goes to the next broker only if it certainly did not reach the previous one. A
//     read-only request is repeated.
//  2. An answer other than 200 is an error with the broker's text.
package brokerapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
)

const TokenVariable = "LOCKSTEP_TOKEN" // the environment variable of the token, which the text of a refusal names

const nextTimeout = 4 * time.Second // bounds a read-only request if another broker can be tried after it

// Client sends requests to brokers. It may be used by several goroutines once its fields are set.
type Client struct {
	Addresses []string // of any brokers of the cluster, for CallAny and GetAny
	HTTP      *http.Client
	TLS       bool // the addresses are HTTPS ports
}

// Address returns the HTTP address of a broker's API: its HTTPS port with TLS, "" if it has none.
func (c *Client) Address(b api.BrokerView) string {
	if c.TLS {
		return b.HTTPSAddress
	}
	return b.HTTPAddress
}

// CallAny sends one request to the brokers in turn until one answers. A request that changes something goes to the next
// broker only if it certainly did not reach the previous one.
func (c *Client) CallAny(ctx context.Context, method, path string, query url.Values) ([]byte, error) {
	var silent []error
	for i, address := range c.Addresses {
		one, cancel := ctx, context.CancelFunc(func() {})
		if i < len(c.Addresses)-1 && method == http.MethodGet {
			one, cancel = context.WithTimeout(ctx, nextTimeout)
		}
		body, err := c.Call(one, method, address, path, query)
		cancel()
		if err == nil || ctx.Err() != nil || !unanswered(err, method) || len(c.Addresses) == 1 {
			return body, err
		}
		if Status(err) != 0 { // the answer does not name the broker that sent it
			err = fmt.Errorf("%s: %w", address, err)
		}
		silent = append(silent, err)
	}
	return nil, fmt.Errorf("no broker answers:\n%w", errors.Join(silent...))
}

// unanswered reports whether another broker may be tried after this error: no process listens,
// the broker is not ready, or a read-only request has no answer.
func unanswered(err error, method string) bool {
	if answer, ok := errors.AsType[*statusError](err); ok {
		return answer.notReady
	}
	op, ok := errors.AsType[*net.OpError](err)
	return method == http.MethodGet || ok && op.Op == "dial"
}

// Status returns the HTTP status of an answer other than 200; 0 for any other error.
func Status(err error) int {
	if answer, ok := errors.AsType[*statusError](err); ok {
		return answer.code
	}
	return 0
}

// Refused reports whether every broker would repeat this answer: the request is wrong or forbidden.
func Refused(err error) bool {
	status := Status(err)
	return status >= 400 && status < 500 && status != http.StatusTooManyRequests
}

// Unanswered reports whether no broker answered, or none that was ready.
func Unanswered(err error) bool {
	if answer, ok := errors.AsType[*statusError](err); ok {
		return answer.notReady
	}
	_, request := errors.AsType[*url.Error](err)
	_, connection := errors.AsType[*net.OpError](err)
	return request || connection
}

// FirstAdministrator returns the broker that refuses to create the first administrator without its secret, and the file
// with the secret; "" for any other error.
func FirstAdministrator(err error) (address, file string) {
	if answer, ok := errors.AsType[*statusError](err); ok && answer.Message == needsSecret {
		return answer.address, answer.File
	}
	return "", ""
}

const needsSecret = "FIRST_ADMINISTRATOR_NEEDS_SECRET"

// statusError is an answer other than 200, with the broker's text.
type statusError struct {
	address               string // of the broker
	request, status, text string
	code                  int
	notReady              bool // the broker is starting and has done nothing
	reply
}

// reply is the text of a broker: JSON. Other servers answer plain text.
type reply struct {
	Message, Detail, File string
	HTTPSPort             int `json:"https_port"`
}

// codes are sentences for the brokers' error codes that operators encounter.
var codes = map[string]string{
	"TOPIC_NOT_FOUND":   "there is no such topic: nsqctl topic list, and nsqctl topic trash for deleted ones",
	"CHANNEL_NOT_FOUND": "there is no such channel: nsqctl channel list",
	"BROKER_NOT_FOUND":  "there is no such broker: nsqctl broker list",
}

// Error is the broker's own sentence where it gives one, and the HTTP status otherwise.
func (e *statusError) Error() string {
	sentence, known := codes[e.Message]
	switch {
	case e.code == http.StatusBadRequest && strings.HasPrefix(e.text, "Client sent an HTTP request to an HTTPS server"): // the words of net/http
		return "this is a port with TLS: give --tls-root-ca-file, or --tls if a public authority signed the certificate"
	case e.Message == "":
		return e.hint(fmt.Sprintf("%s: %s: %s", e.request, e.status, e.text))
	case e.Message == needsSecret:
		return fmt.Sprintf("the first administrator takes the secret of the broker %s, which is in its file %s", e.address, e.File)
	case e.Message == "TLS_REQUIRED":
		return fmt.Sprintf("the broker requires TLS: give its HTTPS address (port %d) with --nsqd-http-address, and --tls-root-ca-file (TLS_REQUIRED)", e.HTTPSPort)
	case known:
		return e.hint(fmt.Sprintf("%s (%s)", sentence, e.Message))
	case e.Detail != "":
		return e.hint(fmt.Sprintf("the broker refuses: %s (%s)", e.Detail, e.Message))
	}
	return e.hint("the broker refuses: " + e.Message)
}

// hint adds the next step of a request that lacks a right.
func (e *statusError) hint(text string) string {
	switch {
	case e.code == http.StatusUnauthorized:
		text += "\nthe brokers ask for a token: --token-file, or $" + TokenVariable
	case e.code == http.StatusForbidden && strings.Contains(e.text, "FORBIDDEN"):
		text += "\nrights: nsqctl acl list, nsqctl acl grant --help"
	}
	return text
}

// Call sends one request to one broker and returns the body; any answer but 200 is a statusError.
func (c *Client) Call(ctx context.Context, method, address, path string, query url.Values) ([]byte, error) {
	return c.exchange(ctx, method, address, path, query, nil, nil)
}

func (c *Client) exchange(ctx context.Context, method, address, path string, query url.Values, header http.Header, content io.Reader) ([]byte, error) {
	if address == "" {
		return nil, errors.New("this broker has no HTTPS port")
	}
	u := url.URL{Scheme: "http", Host: address, Path: path, RawQuery: query.Encode()}
	if c.TLS {
		u.Scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), content)
	if err != nil {
		return nil, fmt.Errorf("%s: not an address, it must be host:port", address)
	}
	maps.Copy(req.Header, header)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, Reason(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, Reason(err))
	}
	if resp.StatusCode != http.StatusOK {
		refused := &statusError{
			address: address, request: method + " " + path, status: resp.Status, text: strings.TrimSpace(string(body)), code: resp.StatusCode,
			notReady: resp.Header.Get(api.NotReadyHeader) != "",
		}
		_ = json.Unmarshal(body, &refused.reply)
		return nil, refused
	}
	return body, nil
}

// GetAny decodes the JSON answer of the first broker that answers into v.
func (c *Client) GetAny(ctx context.Context, path string, query url.Values, v any) error {
	body, err := c.CallAny(ctx, http.MethodGet, path, query)
	return decode(body, err, path, v)
}

// PostAny sends a request that changes something, and decodes the answer into v, unless v is nil.
func (c *Client) PostAny(ctx context.Context, path string, query url.Values, v any) error {
	body, err := c.CallAny(ctx, http.MethodPost, path, query)
	return decode(body, err, path, v)
}

// Get decodes the JSON answer of one broker into v.
func (c *Client) Get(ctx context.Context, address, path string, query url.Values, v any) error {
	body, err := c.Call(ctx, http.MethodGet, address, path, query)
	return decode(body, err, path, v)
}

func decode(body []byte, err error, path string, v any) error {
	if err != nil || v == nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s: this is not the answer of a Lockstep broker: %w", path, err)
	}
	return nil
}

// Send posts a body to one broker and returns the body of its answer; any answer but 200 is a statusError.
func (c *Client) Send(ctx context.Context, address, path string, query url.Values, header http.Header, body []byte) ([]byte, error) {
	return c.exchange(ctx, http.MethodPost, address, path, query, header, bytes.NewReader(body))
}

// Cluster reads the view of the cluster.
func (c *Client) Cluster(ctx context.Context) (v api.ClusterView, err error) {
	err = c.GetAny(ctx, "/v1/cluster", nil, &v)
	return v, err
}

// Topic reads the view of a topic, and of its cluster; the boolean is false if the cluster does not have it.
func (c *Client) Topic(ctx context.Context, topic string) (v api.ClusterView, t api.TopicView, there bool, err error) {
	v, err = c.Cluster(ctx)
	if i := slices.IndexFunc(v.Topics, func(x api.TopicView) bool { return x.Topic == topic }); i >= 0 {
		return v, v.Topics[i], true, err
	}
	return v, t, false, err
}

// List reads an answer that is a list in a field.
func List[E any](ctx context.Context, c *Client, path string, query url.Values, field string) (list []E, err error) {
	var answer map[string]json.RawMessage
	if err := c.GetAny(ctx, path, query, &answer); err != nil || answer[field] == nil {
		return nil, err
	}
	err = decode(answer[field], nil, path, &list)
	return list, err
}

// CreateChannel creates a channel unless it exists, and reports whether it did. The query has further settings; nil: none.
func (c *Client) CreateChannel(ctx context.Context, topic, channel string, query url.Values) (created bool, err error) {
	views, err := c.Channels(ctx, topic)
	if err != nil || slices.ContainsFunc(views, func(x api.ChannelView) bool { return x.Channel == channel }) {
		return false, err
	}
	all := url.Values{"topic": {topic}, "channel": {channel}}
	maps.Copy(all, query)
	err = c.PostAny(ctx, "/channel/create", all, nil)
	return err == nil, err
}

// Channels lists the durable channels of a topic.
func (c *Client) Channels(ctx context.Context, topic string) ([]api.ChannelView, error) {
	return List[api.ChannelView](ctx, c, "/v1/topic/channels", url.Values{"topic": {topic}}, "channels")
}

// reason is a failure of the network in an operator's words.
type reason struct {
	text  string
	cause error
}

func (r *reason) Error() string { return r.text }
func (r *reason) Unwrap() error { return r.cause }

// Reason explains a network error to an operator, and wraps it. Other errors are returned unchanged.
func Reason(err error) error {
	if text := reasonOf(err); text != "" {
		return &reason{text, err}
	}
	return err
}

func reasonOf(err error) string {
	var (
		name    *net.DNSError
		address *net.AddrError
		peer    *tls.CertificateVerificationError
		request *url.Error
		record  tls.RecordHeaderError
		timeout net.Error
	)
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: the broker is not started, or has another address"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to this address"
	case errors.As(err, &name) && name.IsNotFound:
		return "there is no host " + name.Name
	case errors.As(err, &name):
		return "the address of host " + name.Name + " cannot be looked up: the name service does not answer"
	case errors.As(err, &address):
		return "not an address, it must be host:port"
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &record):
		return "the listener does not speak TLS: it may be a port without TLS"
	case errors.As(err, &peer):
		return "its certificate is not trusted: " + certificateFault(peer.Err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "it closed the connection without an answer: it may require TLS, or be another port"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "it does not answer in time"
	case strings.Contains(err.Error(), "malformed HTTP"):
		return "the listener does not speak HTTP: it may be the TCP port (by default HTTP has 4151, TCP 4150)"
	case errors.As(err, &request):
		return request.Err.Error()
	}
	return ""
}

// certificateFault returns advice for common certificate faults.
func certificateFault(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	text := strings.TrimPrefix(err.Error(), "x509: ")
	switch {
	case errors.As(err, &unknown):
		return "no known authority signed it; --tls-root-ca-file names yours"
	case errors.As(err, &name):
		return text + "; use a name that it has"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return text + "; it must be renewed, or a clock is wrong"
	}
	return text
}
