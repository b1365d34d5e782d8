package etcd

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/auth"
)

// root is the user and the role that etcd requires before it enables authentication.
const root = "root"

// errLogin means that the data directory requires a user or password different from the given one.
var errLogin = errors.New("etcd: this directory already requires logins, with another user or password; " +
	"change it with etcdctl, or take an empty directory")

// RequireLogin makes the cluster refuse every client that does not log in as this user, who has all permissions. If the
// cluster already requires logins, as after a restart, it must accept this user (errLogin). It is for a member that
// brokers use as an external etcd; TLS protects the embedded one.
func (s *Server) RequireLogin(ctx context.Context, user, password string) error {
	if known := s.etcd.Server.AuthStore(); known.IsAuthEnabled() {
		if _, err := known.CheckPassword(user, password); err != nil {
			return fmt.Errorf("%w: user %q: %w", errLogin, user, err)
		}
		return nil
	}
	for _, name := range []string{root, user} {
		if err := s.addUser(ctx, name, password); err != nil {
			return fmt.Errorf("etcd: add user %q: %w", name, err)
		}
	}
	if _, err := s.etcd.Server.AuthEnable(ctx, &pb.AuthEnableRequest{}); err != nil {
		return fmt.Errorf("etcd: turn authentication on: %w", err)
	}
	return nil
}

func (s *Server) addUser(ctx context.Context, name, password string) error {
	_, err := s.etcd.Server.UserAdd(ctx, &pb.AuthUserAddRequest{Name: name, Password: password})
	if err != nil && !errors.Is(err, auth.ErrUserAlreadyExist) {
		return err
	}
	_, err = s.etcd.Server.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: name, Role: root})
	return err
}
