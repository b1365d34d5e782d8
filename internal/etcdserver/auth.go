package etcdserver

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/auth"
)

// root is the user, and the role, without which etcd turns no authentication on.
const root = "root"

// RequireLogin turns away everybody who does not log in as this user, who may do
// anything. A cluster that has the user already only gets what is missing. For a
// member that is given to brokers as an external etcd; brokers that embed one
// protect it by TLS.
func (s *Server) RequireLogin(ctx context.Context, user, password string) error {
	for _, name := range []string{root, user} {
		if err := s.addUser(ctx, name, password); err != nil {
			return fmt.Errorf("etcdserver: add user %q: %w", name, err)
		}
	}
	if _, err := s.etcd.Server.AuthEnable(ctx, &pb.AuthEnableRequest{}); err != nil {
		return fmt.Errorf("etcdserver: turn authentication on: %w", err)
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
