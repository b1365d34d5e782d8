package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/internal/api"
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

// prepare combines the flags.
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
	if err := t.validAddresses(); err != nil {
		return err
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

// validAddresses refuses what is no address of a broker, such as a URL.
func (t *Target) validAddresses() error {
	for _, given := range []struct {
		flag      string
		addresses []string
	}{{"nsqd-tcp-address", t.TCP}, {"nsqd-http-address", t.Addresses}} {
		for _, a := range given.addresses {
			if !config.IsHostPort(a) {
				return Usage("--%s=%s: must be host:port, such as %s", given.flag, a, HTTPAddress)
			}
		}
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
	prefer := func(flag string, addresses *[]string, found []string) {
		if cmd.Flags().Changed(flag) {
			return
		}
		for _, a := range *addresses {
			if !slices.Contains(found, a) {
				found = append(found, a)
			}
		}
		*addresses = found
	}
	prefer("nsqd-tcp-address", &t.TCP, tcp)
	prefer("nsqd-http-address", &t.Addresses, web)
}
