package certcmd

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/config"
)

const (
	day = 24 * time.Hour
	// The days for which a certificate is valid by default, and at most.
	leafDays, authorityDays, maxDays = 365, 3650, 36500
)

// NewCert returns the command that issues certificates.
func NewCert(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cert",
		Short: "make an authority, and the certificates of brokers and clients",
		Long: `cert makes what brokers require of certificates, with the right names and usages. It
asks no broker, so it can run on a machine of its own. Keep ca.key there: with it anybody
is a broker. Private keys are readable by you alone, and no file is replaced.`,
	}
	cmd.AddCommand(newAuthorityCommand(t), newBrokerCommand(t), newClientCommand(t))
	return cmd
}

// issued is the result of a command.
type issued struct {
	Files []string  `json:"files"`
	Until time.Time `json:"valid_until"`
}

// report prints what was written. All certificates of a command end together.
func report(cmd *cobra.Command, t *cli.Target, files []file, certificate []byte) error {
	block, _ := pem.Decode(certificate)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	made := issued{Until: c.NotAfter}
	for _, f := range files {
		made.Files = append(made.Files, f.path)
	}
	if t.Output == "json" {
		return cli.PrintJSON(cmd.OutOrStdout(), made)
	}
	for _, path := range made.Files {
		fmt.Fprintln(cmd.OutOrStdout(), path)
	}
	fmt.Fprintln(cmd.OutOrStdout(), "valid until", c.NotAfter.Format(time.DateOnly))
	return nil
}

// daysFlag adds --days to a command.
func daysFlag(cmd *cobra.Command, days *int, otherwise int) {
	cmd.Flags().IntVar(days, "days", otherwise, "days for which it is valid")
}

// lasting returns the time of --days.
func lasting(days int) (time.Duration, error) {
	if days < 1 || days > maxDays {
		return 0, cli.ExitError{Code: cli.ExitUsage, Err: fmt.Errorf("--days=%d: must be 1 to %d", days, maxDays)}
	}
	return time.Duration(days) * day, nil
}

func newAuthorityCommand(t *cli.Target) *cobra.Command {
	var out, name string
	var days int
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "make an authority: ca.crt, and ca.key, which signs certificates",
		Long: `ca makes an authority for the certificates of one cluster's brokers, and of its clients.
Every broker and every client needs ca.crt. Only nsqctl cert needs ca.key.`,
		Example: `  nsqctl cert ca
  nsqctl cert ca --out authority`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&out, "out", ".", "folder for the files; it must exist")
	cmd.Flags().StringVar(&name, "name", "Lockstep authority", "common name of the authority")
	daysFlag(cmd, &days, authorityDays)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		valid, err := lasting(days)
		if err != nil {
			return err
		}
		certificate, secret, err := newAuthority(name, valid)
		if err != nil {
			return err
		}
		files := []file{{filepath.Join(out, authorityKey), secret, forOwner}, {filepath.Join(out, config.AuthorityFile), certificate, forAll}}
		if err := write(nil, files); err != nil {
			return err
		}
		return report(cmd, t, files, certificate)
	}
	return cmd
}

// folders adds the flags for the authority and for the results.
func folders(cmd *cobra.Command, ca, out *string) {
	cmd.Flags().StringVar(ca, "ca", ".", "folder with ca.crt and ca.key")
	cmd.Flags().StringVar(out, "out", ".", "folder for the results; it must exist")
}

func newBrokerCommand(t *cli.Target) *cobra.Command {
	var ca, out string
	var also []string
	var days int
	cmd := &cobra.Command{
		Use:   "broker HOST...",
		Short: "make the certificates of brokers: a folder HOST with ca.crt, tls.crt and tls.key",
		Long: `broker makes a certificate for each host, and a folder of its name with the three files
that nsqd reads in --tls-dir: copy the folder to the host as /etc/lockstep/tls. HOST is
the name in nsqd's --join, and the broker's --node-name. The certificate serves for
connections of other brokers and of clients. --also adds a name or address at which
clients connect, such as that of a load balancer, to each certificate.

To renew a certificate, make it in another folder and copy the files over the earlier
ones. Brokers read them again by themselves, those for clients at SIGHUP.`,
		Example: `  nsqctl cert broker n1.example n2.example n3.example
  nsqctl cert broker n1.example --also mq.example --also 127.0.0.1
  mkdir renewed && nsqctl cert broker n1.example --out renewed`,
		Args: cobra.MinimumNArgs(1),
	}
	folders(cmd, &ca, &out)
	cmd.Flags().StringSliceVar(&also, "also", nil, "further name or address in each certificate; may be repeated")
	daysFlag(cmd, &days, leafDays)
	cmd.RunE = func(cmd *cobra.Command, hosts []string) error {
		valid, err := lasting(days)
		if err != nil {
			return err
		}
		if err := validHosts(hosts, also); err != nil {
			return cli.ExitError{Code: cli.ExitUsage, Err: err}
		}
		by, err := openAuthority(ca)
		if err != nil {
			return err
		}
		var dirs []string
		var files []file
		var certificate, secret []byte
		for _, host := range hosts {
			if certificate, secret, err = by.ofBroker(host, also, valid); err != nil {
				return err
			}
			dir := filepath.Join(out, host)
			dirs = append(dirs, dir)
			files = append(files, file{filepath.Join(dir, config.AuthorityFile), by.pem, forAll},
				file{filepath.Join(dir, config.CertificateFile), certificate, forAll}, file{filepath.Join(dir, config.KeyFile), secret, forOwner})
		}
		if err := write(dirs, files); err != nil {
			return err
		}
		return report(cmd, t, files, certificate)
	}
	return cmd
}

// validHosts refuses names that no broker can have, and a certificate with which one broker could pose as another.
func validHosts(hosts, also []string) error {
	for i, host := range hosts {
		if !config.IsBrokerHost(host) {
			return fmt.Errorf("%q: must be the host name of a broker, in small letters and without a port; an address goes into --also", host)
		}
		if slices.Contains(hosts[:i], host) {
			return fmt.Errorf("%s stands there twice", host)
		}
		if slices.Contains(also, host) {
			return fmt.Errorf("--also=%s: with the name of a broker another broker could pose as this one", host)
		}
	}
	for _, name := range also {
		if !config.IsCertificateName(name) {
			return fmt.Errorf("--also=%s: must be a host name, a wildcard such as *.example, or an IP address", name)
		}
	}
	return nil
}

func newClientCommand(t *cli.Target) *cobra.Command {
	var ca, out string
	var days int
	cmd := &cobra.Command{
		Use:   "client USER",
		Short: "make the certificate of a client: USER.crt and USER.key",
		Long: `client makes a certificate with which a user of the cluster logs in (nsqctl user create
USER --certificate), at brokers with --tls-client-auth-policy=require-verify. No broker
takes it for a broker's: it has no DNS name, and is not valid for servers.`,
		Example: `  nsqctl cert client shop-writer
  nsqctl user create shop-writer --certificate`,
		Args: cobra.ExactArgs(1),
	}
	folders(cmd, &ca, &out)
	daysFlag(cmd, &days, leafDays)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		valid, err := lasting(days)
		if err != nil {
			return err
		}
		if !api.ValidName(args[0]) {
			return cli.ExitError{Code: cli.ExitUsage, Err: fmt.Errorf("%q: a user's name has up to 64 letters, digits, dots, - and _", args[0])}
		}
		by, err := openAuthority(ca)
		if err != nil {
			return err
		}
		certificate, secret, err := by.ofClient(args[0], valid)
		if err != nil {
			return err
		}
		files := []file{{filepath.Join(out, args[0]+".key"), secret, forOwner}, {filepath.Join(out, args[0]+".crt"), certificate, forAll}}
		if err := write(nil, files); err != nil {
			return err
		}
		return report(cmd, t, files, certificate)
	}
	return cmd
}
