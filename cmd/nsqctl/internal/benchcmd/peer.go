package benchcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/certcmd"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
)

const (
	// peerPorts separates the ports of the two clusters of --users and --encrypted.
	peerPorts = 500
	// otherUsers are users beside the measured one, so that the policy is not a single entry.
	otherUsers = 9
)

// startWithTLS starts a second cluster, which the workloads reach over TLS. Its brokers
// talk to each other in plain text, so that the ratio is the cost of the clients' TLS.
func (o benchOptions) startWithTLS(ctx context.Context, t *cli.Target) (*subject, func(), error) {
	dir, err := os.MkdirTemp("", "nsqctl-bench-tls-")
	if err != nil {
		return nil, nil, err
	}
	removeDir := func() { _ = os.RemoveAll(dir) }
	clients, certFile, keyFile, err := certcmd.Loopback(dir)
	if err != nil {
		removeDir()
		return nil, nil, fmt.Errorf("certificate of the second cluster: %w", err)
	}
	o.brokers = append([]string{"--tls-cert=" + certFile, "--tls-key=" + keyFile}, o.brokers...)
	s, stop, err := o.startPeer(ctx, t, "cluster over TLS")
	if err != nil {
		removeDir()
		return nil, nil, err
	}
	s.from.Security.TLSConfig = clients // of TCP connections; the HTTP port is asked in plain text
	return s, func() { stop(); removeDir() }, nil
}

func (o benchOptions) startPeer(ctx context.Context, t *cli.Target, label string) (*subject, func(), error) {
	o.basePort += peerPorts
	stop, err := o.startCluster(ctx)
	if err != nil {
		return nil, nil, err
	}
	with := *t
	s, err := newSubject(&with, o)
	if err != nil {
		stop()
		return nil, nil, err
	}
	s.label = label
	return s, stop, nil
}

// startWithUsers starts a second cluster, in which every command is checked against the
// rights of a user that is no administrator.
func (o benchOptions) startWithUsers(ctx context.Context, t *cli.Target) (*subject, func(), error) {
	s, stop, err := o.startPeer(ctx, t, "cluster with users")
	if err != nil {
		return nil, nil, err
	}
	if err := s.closeCluster(ctx); err != nil {
		stop()
		return nil, nil, fmt.Errorf("users of the second cluster: %w", err)
	}
	return s, stop, nil
}

// closeCluster creates users, and logs the subject in as one of them.
func (s *subject) closeCluster(ctx context.Context) error {
	root, err := s.createUser(ctx, "root", true)
	if err != nil {
		return err
	}
	s.logIn(root)
	for i := range otherUsers {
		name := fmt.Sprint("other-", i)
		if _, err := s.createUser(ctx, name, false); err != nil {
			return err
		}
		if err := s.grant(ctx, name, url.Values{"topic": {name + ".*"}, "rights": {"publish,consume"}}); err != nil {
			return err
		}
	}
	token, err := s.createUser(ctx, "bench", false)
	if err != nil {
		return err
	}
	for _, rights := range []url.Values{
		{"topic": {"orders.*"}, "rights": {"publish"}}, {"topic": {"*.archive"}, "rights": {"consume"}},
		{"topic": {"bench_*"}, "rights": {"publish,consume,administer"}}, {"cluster": {"observe"}},
	} {
		if err := s.grant(ctx, "bench", rights); err != nil {
			return err
		}
	}
	s.logIn(token)
	return nil
}

func (s *subject) logIn(token string) {
	s.from.Security.Token, s.from.Security.Secret = token, ""
	s.from.HTTP = s.from.Security.HTTPClient()
}

func (s *subject) createUser(ctx context.Context, name string, admin bool) (token string, err error) {
	body, err := s.from.CreateUser(ctx, s.http[0], url.Values{"name": {name}, "admin": {fmt.Sprint(admin)}})
	if err != nil {
		return "", err
	}
	var made httpapi.NewToken
	err = json.Unmarshal(body, &made)
	return made.Token, err
}

func (s *subject) grant(ctx context.Context, name string, rights url.Values) error {
	rights.Set("user", name)
	_, err := s.from.Call(ctx, http.MethodPost, s.http[0], "/v1/acl/grant", rights)
	return err
}
