package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/internal/auth/access"
)

// CreateUser asks a broker to create a user; address "" is any broker. For the first administrator it reads the broker's
// secret, if that is a file of this machine that the caller may read, and no token is given.
func (t *Target) CreateUser(ctx context.Context, address string, query url.Values) ([]byte, error) {
	const path = "/v1/user/create"
	ask := t.Client
	if address != "" {
		ask.Addresses = []string{address}
	}
	body, err := ask.CallAny(ctx, http.MethodPost, path, query)
	at, file := brokerapi.FirstAdministrator(err)
	if file == "" || t.Security.Token != "" || t.Security.Secret != "" {
		return body, err
	}
	if !ours(ctx, at) {
		return nil, fmt.Errorf("%w\nrun nsqctl on that broker's machine, or copy the file and give it with --token-file", err)
	}
	secret, reading := readFirst(file)
	if reading != nil {
		return nil, fmt.Errorf("%w\nnsqctl cannot read it: %w; run nsqctl as root or as the broker's user, or give a copy of the file with --token-file", err, reading)
	}
	return t.Send(ctx, at, path, query, http.Header{"Authorization": {"Bearer " + secret}}, nil)
}

// readFirst reads the secret for the first administrator. It reads no other file: the broker names it.
func readFirst(file string) (string, error) {
	if filepath.Base(file) != access.FirstFile {
		return "", fmt.Errorf("%s is not a file of that name: %s", file, access.FirstFile)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	secret, ok := access.ParseFirst(text)
	if !ok {
		return "", errors.New(file + " has no such secret")
	}
	return secret, nil
}

// ours reports whether an address is one of this machine: the secret goes to no other.
func ours(ctx context.Context, address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil || len(ips) == 0 {
		return false
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(ips, func(ip net.IPAddr) bool {
		return !ip.IP.IsLoopback() && !slices.ContainsFunc(own, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.Equal(ip.IP)
		})
	})
}
