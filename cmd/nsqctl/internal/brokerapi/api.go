package brokerapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
)

// TokenVariable is the environment variable of the token, which the text of a refusal names.
const TokenVariable = "LOCKSTEP_TOKEN"

// nextTimeout bounds a read-only request if another broker can be tried after it.
const nextTimeout = 4 * time.Second

// Client asks brokers. It may be used by several goroutines once its fields are set.
type Client struct {
	Addresses []string // of any brokers of the cluster, for CallAny and GetAny
	HTTP      *http.Client
	TLS       bool // addresses are those of HTTPS ports
}

// Address returns the HTTP address of a broker's API: its HTTPS port with TLS, "" if it has none.
func (c *Client) Address(b api.BrokerView) string {
	if c.TLS {
		return b.HTTPSAddress
	}
	return b.HTTPAddress
}

// Others returns the HTTP addresses of the other live brokers.
func (c *Client) Others(v api.ClusterView, but string) (addresses []string) {
	for _, b := range v.Brokers {
		if at := c.Address(b); b.Alive && at != "" && at != but {
			addresses = append(addresses, at)
		}
	}
	return addresses
}

// CallAny sends one request to the brokers in turn until one answers. A request that changes
// something goes to the next broker only if it certainly did not reach the one before.
func (c *Client) CallAny(ctx context.Context, method, path string, query url.Values) ([]byte, error) {
	var silent []error
	for i, address := range c.Addresses {
		body, err := c.callInTime(ctx, i == len(c.Addresses)-1, method, address, path, query)
		if err == nil || ctx.Err() != nil || !unanswered(err, method) {
			return body, err
		}
		if len(c.Addresses) == 1 {
			return nil, err
		}
		if Status(err) != 0 { // the broker's answer does not say whose it is
			err = fmt.Errorf("%s: %w", address, err)
		}
		silent = append(silent, err)
	}
	return nil, fmt.Errorf("no broker answers:\n%w", errors.Join(silent...))
}

// callInTime uses nextTimeout for a read-only request if there is another broker to try.
func (c *Client) callInTime(ctx context.Context, last bool, method, address, path string, query url.Values) ([]byte, error) {
	if !last && method == http.MethodGet {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, nextTimeout)
		defer cancel()
	}
	return c.Call(ctx, method, address, path, query)
}

// unanswered reports whether another broker may be tried after this error: no process listens,
// the broker is not ready, or a read-only request has no answer.
func unanswered(err error, method string) bool {
	var answer *statusError
	if errors.As(err, &answer) {
		return answer.notReady
	}
	var op *net.OpError
	return method == http.MethodGet || errors.As(err, &op) && op.Op == "dial"
}

// Status returns the HTTP status of an answer other than 200; 0 if err is none.
func Status(err error) int {
	var answer *statusError
	if !errors.As(err, &answer) {
		return 0
	}
	return answer.code
}

// Unanswered reports whether no broker answered, or none that was ready.
func Unanswered(err error) bool {
	var answer *statusError
	if errors.As(err, &answer) {
		return answer.notReady
	}
	var request *url.Error
	var connection *net.OpError
	return errors.As(err, &request) || errors.As(err, &connection)
}

// FirstAdministrator gives the broker that refuses to make the first administrator without its secret, and the file that
// has it; "" for any other error.
func FirstAdministrator(err error) (address, file string) {
	var answer *statusError
	if !errors.As(err, &answer) || answer.code != http.StatusForbidden {
		return "", ""
	}
	var told struct{ Message, File string }
	if json.Unmarshal([]byte(answer.text), &told) != nil || told.Message != "FIRST_ADMINISTRATOR_NEEDS_SECRET" {
		return "", ""
	}
	return answer.address, told.File
}

// statusError is an answer other than 200, with the broker's text.
type statusError struct {
	address               string // of the broker
	request, status, text string
	code                  int
	notReady              bool // the broker is starting and has done nothing
}

// codes are sentences for the codes of brokers that operators meet.
var codes = map[string]string{
	"TOPIC_NOT_FOUND":   "there is no such topic: nsqctl topic list, and nsqctl topic trash for deleted ones",
	"CHANNEL_NOT_FOUND": "there is no such channel: nsqctl channel list",
	"BROKER_NOT_FOUND":  "there is no such broker: nsqctl broker list",
}

// Error is the broker's own sentence where it gives one, and the HTTP status otherwise.
func (e *statusError) Error() string {
	var answer struct {
		Message, Detail, File string
		HTTPSPort             int `json:"https_port"`
	}
	if e.code == http.StatusBadRequest && strings.HasPrefix(e.text, "Client sent an HTTP request to an HTTPS server") { // the words of net/http
		return "this is a port with TLS: give --tls-root-ca-file, or --tls if a public authority signed the certificate"
	}
	if json.Unmarshal([]byte(e.text), &answer) != nil || answer.Message == "" {
		return e.hint(fmt.Sprintf("%s: %s: %s", e.request, e.status, e.text))
	}
	if answer.Message == "FIRST_ADMINISTRATOR_NEEDS_SECRET" {
		return fmt.Sprintf("the first administrator takes the secret of the broker %s, which is in its file %s", e.address, answer.File)
	}
	if answer.Message == "TLS_REQUIRED" {
		return fmt.Sprintf("the broker requires TLS: give its HTTPS address (port %d) with --nsqd-http-address, and --tls-root-ca-file (TLS_REQUIRED)", answer.HTTPSPort)
	}
	if sentence, ok := codes[answer.Message]; ok {
		return e.hint(fmt.Sprintf("%s (%s)", sentence, answer.Message))
	}
	if answer.Detail != "" {
		return e.hint(fmt.Sprintf("the broker refuses: %s (%s)", answer.Detail, answer.Message))
	}
	return e.hint("the broker refuses: " + answer.Message)
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

// Call sends one request to one broker and returns the body; any answer but 200 is a
// statusError.
func (c *Client) Call(ctx context.Context, method, address, path string, query url.Values) ([]byte, error) {
	return c.exchange(ctx, method, address, path, query, nil, nil)
}

// CallAs is Call with a token.
func (c *Client) CallAs(ctx context.Context, token, address, path string, query url.Values) ([]byte, error) {
	return c.exchange(ctx, http.MethodPost, address, path, query, http.Header{"Authorization": {"Bearer " + token}}, nil)
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
		return nil, fmt.Errorf("%s: this is no address: it must be host:port", address)
	}
	for name, values := range header {
		req.Header[name] = values
	}
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
		return nil, &statusError{
			address: address, request: method + " " + path, status: resp.Status, text: strings.TrimSpace(string(body)), code: resp.StatusCode,
			notReady: resp.Header.Get(api.NotReadyHeader) != "",
		}
	}
	return body, nil
}

// GetAny decodes the JSON answer of the first broker that answers into v.
func (c *Client) GetAny(ctx context.Context, path string, query url.Values, v any) error {
	body, err := c.CallAny(ctx, http.MethodGet, path, query)
	if err != nil {
		return err
	}
	return Decode(body, path, v)
}

// Get decodes the JSON answer of one broker into v.
func (c *Client) Get(ctx context.Context, address, path string, query url.Values, v any) error {
	body, err := c.Call(ctx, http.MethodGet, address, path, query)
	if err != nil {
		return err
	}
	return Decode(body, path, v)
}

// Decode decodes a JSON answer to a request for path.
func Decode(body []byte, path string, v any) error {
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s: this is not the answer of a Lockstep broker: %w", path, err)
	}
	return nil
}

// Send posts a body to one broker and returns the body of its answer; any answer but 200 is a
// statusError.
func (c *Client) Send(ctx context.Context, address, path string, query url.Values, header http.Header, body []byte) ([]byte, error) {
	return c.exchange(ctx, http.MethodPost, address, path, query, header, bytes.NewReader(body))
}
