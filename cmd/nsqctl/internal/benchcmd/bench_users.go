package benchcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
)

const (
	// peerPorts separates the ports of the two clusters of --users and --encrypted.
	peerPorts = 500
	// otherUsers are users beside the measured one, so that the policy is not a single entry.
	otherUsers = 9
)

// startWithUsers starts a second cluster, in which every command is checked against the
// rights of a user that is no administrator.
func (o benchOptions) startWithUsers(ctx context.Context, t *cli.Target) (*subject, func(), error) {
	o.basePort += peerPorts
	stop, err := o.startCluster(ctx)
	if err != nil {
		return nil, nil, err
	}
	with := *t
	s, err := newSubject(&with, o)
	if err == nil {
		err = s.closeCluster(ctx)
	}
	if err != nil {
		stop()
		return nil, nil, fmt.Errorf("users of the second cluster: %w", err)
	}
	s.label = "cluster with users"
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

// logIn uses a token from now on.
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
