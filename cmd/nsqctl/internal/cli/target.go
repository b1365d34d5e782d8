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

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
)

// Target holds the addresses of the brokers; any broker of the cluster can answer.
type Target struct {
	brokerapi.Client // valid while a command runs
	TCP              []string
	Output           string // text or json; valid while a command runs
	Wide, yaml       bool   // more columns; JSON is printed as YAML
	Security         Security
	// AddressFlag: the command line itself has --nsqd-http-address, not only the environment
	// or a profile.
	AddressFlag bool
}

// The default ports of a broker, and the directory of the clusters of `make run` and `nsqctl
// dev`.
const (
	tcpAddress   = "127.0.0.1:4150"
	HTTPAddress  = "127.0.0.1:4151"
	httpsAddress = "127.0.0.1:4152"
	DevDirectory = "./data"
)

func (t *Target) prepare(cmd *cobra.Command) error {
	t.AddressFlag = cmd.Flags().Changed("nsqd-http-address")
	if err := defaults(cmd); err != nil {
		return err
	}
	if err := t.chooseOutput(); err != nil {
		return err
	}
	if err := t.Security.load(); err != nil {
		return err
	}
	for flag, addresses := range map[string][]string{"nsqd-tcp-address": t.TCP, "nsqd-http-address": t.Addresses} {
		for _, a := range addresses {
			if !config.IsHostPort(a) { // such as a URL
				return Usage("--%s=%s: must be host:port, such as %s", flag, a, HTTPAddress)
			}
		}
	}
	t.HTTP, t.TLS = t.Security.HTTPClient(), t.Security.TLSConfig != nil
	if !cmd.Flags().Changed("nsqd-http-address") && t.Security.TLSConfig != nil {
		t.Addresses = []string{httpsAddress}
	}
	if cmd.Name() != "bench" { // a measurement uses exactly the given brokers
		t.preferDev(cmd)
	}
	return nil
}

// preferDev puts the brokers of a cluster on this machine before the default addresses, so
// that any running one of them is found. The default addresses are tried last, because the
// cluster may be stopped.
func (t *Target) preferDev(cmd *cobra.Command) {
	c, err := devcluster.Load(DevDirectory)
	if err != nil {
		return // there is no file, or it is no cluster's
	}
	var tcp, web []string
	for _, b := range c.Brokers {
		tcp = append(tcp, b.TCP)
		web = append(web, t.Address(api.BrokerView{HTTPAddress: b.HTTP, HTTPSAddress: b.HTTPS}))
	}
	last := func(found, addresses []string) []string {
		return append(found, slices.DeleteFunc(addresses, func(a string) bool { return slices.Contains(found, a) })...)
	}
	if !cmd.Flags().Changed("nsqd-tcp-address") {
		t.TCP = last(tcp, t.TCP)
	}
	if !cmd.Flags().Changed("nsqd-http-address") {
		t.Addresses = last(web, t.Addresses)
	}
}

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
