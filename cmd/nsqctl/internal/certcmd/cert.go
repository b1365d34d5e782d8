// Package certcmd has the commands of nsqctl that issue certificates: an authority, and the certificates of brokers and of
// clients that brokers require.
//
// It asks no broker, and does not record issued certificates: a certificate is revoked by a new authority.
//
// # Invariants
//
//  1. No file is replaced, and a failed command leaves no file behind.
//  2. Only the owner can read a private key, from the moment its file exists.
//  3. The certificate of a client has no DNS name and is not valid for servers, so no broker mistakes it for a broker's
//     certificate.
package certcmd

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"os"
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
		Long: `cert makes what brokers require of certificates, with the right names and usages. It asks no broker, so
it can run on a separate machine. Store ca.key there: it can certify any broker. Private keys are readable by you alone,
and no file is replaced.`,
	}
	cmd.AddCommand(newAuthorityCommand(t), newBrokerCommand(t), newClientCommand(t))
	return cmd
}

type issued struct {
	Files []string  `json:"files"`
	Until time.Time `json:"valid_until"`
}

// certificates are what a command makes. All of its certificates end together.
type certificates struct {
	folders []string
	files   []file
	last    []byte
}

// issuer completes a command that makes certificates below a folder.
func issuer(t *cli.Target, cmd *cobra.Command, days int, make func(out string, args []string, valid time.Duration) (certificates, error)) *cobra.Command {
	out := cmd.Flags().String("out", ".", "folder for the results; it must exist")
	cmd.Flags().IntVar(&days, "days", days, "days for which it is valid")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if days < 1 || days > maxDays {
			return cli.Usage("--days=%d: must be 1 to %d", days, maxDays)
		}
		made, err := make(*out, args, time.Duration(days)*day)
		if err == nil {
			err = write(made.folders, made.files)
		}
		if err != nil {
			return err
		}
		block, _ := pem.Decode(made.last)
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return err
		}
		answer := issued{Until: c.NotAfter}
		for _, f := range made.files {
			answer.Files = append(answer.Files, f.path)
		}
		return cli.Print(cmd, t, answer, func(w io.Writer) {
			for _, path := range answer.Files {
				fmt.Fprintln(w, path)
			}
			fmt.Fprintln(w, "valid until", c.NotAfter.Format(time.DateOnly))
		})
	}
	return cmd
}

func newAuthorityCommand(t *cli.Target) *cobra.Command {
	var name string
	cmd := issuer(t, &cobra.Command{
		Use:   "ca",
		Short: "make an authority: ca.crt, and ca.key, which signs certificates",
		Long: `ca makes an authority for the certificates of one cluster's brokers, and of its clients. Every broker and
every client needs ca.crt. Only nsqctl cert needs ca.key.`,
		Example: `  nsqctl cert ca
  nsqctl cert ca --out authority`,
	}, authorityDays, func(out string, _ []string, valid time.Duration) (certificates, error) {
		certificate, secret, err := newAuthority(name, valid)
		return certificates{files: authorityFiles(out, certificate, secret), last: certificate}, err
	})
	cmd.Flags().StringVar(&name, "name", "Lockstep authority", "common name of the authority")
	return cmd
}

func authorityFiles(dir string, certificate, secret []byte) []file {
	return []file{{filepath.Join(dir, authorityKey), secret, forOwner}, {filepath.Join(dir, config.AuthorityFile), certificate, forAll}}
}

func authorityFlag(cmd *cobra.Command, ca *string) *cobra.Command {
	cmd.Flags().StringVar(ca, "ca", ".", "folder with ca.crt and ca.key")
	return cmd
}

func newBrokerCommand(t *cli.Target) *cobra.Command {
	var ca string
	var also []string
	cmd := issuer(t, &cobra.Command{
		Use:   "broker HOST...",
		Short: "make the certificates of brokers: a folder HOST with ca.crt, tls.crt and tls.key",
		Long: `broker makes a certificate for each host, and a folder of its name with the three files that nsqd reads
in --tls-dir: copy the folder to the host as /etc/lockstep/tls. HOST is the name in nsqd's --join, and the broker's
--node-name. The certificate serves for connections of other brokers and of clients. --also adds a name or address at
which clients connect, such as that of a load balancer, to each certificate.

To renew a certificate, make it in another folder and copy the files over the earlier ones. Brokers read them again by
themselves, those for clients at SIGHUP.`,
		Example: `  nsqctl cert broker n1.example n2.example n3.example
  nsqctl cert broker n1.example --also mq.example --also 127.0.0.1
  mkdir renewed && nsqctl cert broker n1.example --out renewed`,
	}, leafDays, func(out string, hosts []string, valid time.Duration) (made certificates, err error) {
		if err := validHosts(hosts, also); err != nil {
			return made, cli.Usage("%w", err)
		}
		by, err := openAuthority(ca)
		if err != nil {
			return made, err
		}
		for _, host := range hosts {
			var secret []byte
			if made.last, secret, err = by.ofBroker(host, also, valid); err != nil {
				return made, err
			}
			dir := filepath.Join(out, host)
			made.folders = append(made.folders, dir)
			made.files = append(made.files, file{filepath.Join(dir, config.AuthorityFile), by.pem, forAll},
				file{filepath.Join(dir, config.CertificateFile), made.last, forAll}, file{filepath.Join(dir, config.KeyFile), secret, forOwner})
		}
		return made, nil
	})
	cmd.Flags().StringSliceVar(&also, "also", nil, "further name or address in each certificate; may be repeated")
	return authorityFlag(cmd, &ca)
}

// validHosts refuses names that no broker can have, and a certificate with which one broker could pose as another.
func validHosts(hosts, also []string) error {
	for i, host := range hosts {
		if !config.IsBrokerHost(host) {
			return fmt.Errorf("%q: must be the host name of a broker, in lower case and without a port; an address goes into --also", host)
		}
		if slices.Contains(hosts[:i], host) {
			return fmt.Errorf("%s is given twice", host)
		}
		if slices.Contains(also, host) {
			return fmt.Errorf("--also=%s: another broker could then pose as this one", host)
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
	var ca string
	cmd := issuer(t, &cobra.Command{
		Use:   "client USER",
		Short: "make the certificate of a client: USER.crt and USER.key",
		Long: `client makes a certificate with which a user of the cluster logs in (nsqctl user create USER
--certificate), at brokers with --tls-client-auth-policy=require-verify. No broker takes it for a broker's: it has no
DNS name, and is not valid for servers.`,
		Example: `  nsqctl cert client shop-writer
  nsqctl user create shop-writer --certificate`,
	}, leafDays, func(out string, args []string, valid time.Duration) (made certificates, err error) {
		if !api.ValidName(args[0]) {
			return made, cli.Usage("%q: a user's name has up to 64 letters, digits, dots, - and _", args[0])
		}
		by, err := openAuthority(ca)
		if err != nil {
			return made, err
		}
		certificate, secret, err := by.ofClient(args[0], valid)
		path := filepath.Join(out, args[0])
		return certificates{files: []file{{path + ".key", secret, forOwner}, {path + ".crt", certificate, forAll}}, last: certificate}, err
	})
	return authorityFlag(cmd, &ca)
}

// Loopback makes a certificate of 127.0.0.1 for a day, in files of dir. clients trusts its authority.
func Loopback(dir string) (clients *tls.Config, certFile, keyFile string, err error) {
	ca, key, err := newAuthority("nsqctl", day)
	if err == nil {
		err = write(nil, authorityFiles(dir, ca, key))
	}
	if err != nil {
		return nil, "", "", err
	}
	by, err := openAuthority(dir)
	if err != nil {
		return nil, "", "", err
	}
	certificate, secret, err := by.ofBroker("localhost", []string{"127.0.0.1"}, day)
	if err != nil {
		return nil, "", "", err
	}
	certFile, keyFile = filepath.Join(dir, config.CertificateFile), filepath.Join(dir, config.KeyFile)
	clients = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	clients.RootCAs.AddCert(by.cert)
	return clients, certFile, keyFile, write(nil, []file{{certFile, certificate, forAll}, {keyFile, secret, forOwner}})
}

const (
	authorityKey = "ca.key"  // the file with the authority's private key, which no broker needs
	earlier      = time.Hour // makes a certificate valid on hosts whose clocks are behind
	serialBits   = 120       // the length of a random serial number: no two certificates of an authority share one
)

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte // the file with its certificate, for everyone it issues certificates to
}

func openAuthority(dir string) (authority, error) {
	text, err := os.ReadFile(filepath.Join(dir, config.AuthorityFile))
	secret, missing := os.ReadFile(filepath.Join(dir, authorityKey))
	if err = cmp.Or(err, missing); errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: nsqctl cert ca makes an authority; --ca names the folder of one that exists (now %s)", err, dir)
	}
	if err != nil {
		return authority{}, err
	}
	pair, err := tls.X509KeyPair(text, secret)
	if err != nil {
		return authority{}, fmt.Errorf("%s and %s in %s: %w", config.AuthorityFile, authorityKey, dir, err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	switch {
	case !ok || !pair.Leaf.IsCA:
		return authority{}, fmt.Errorf("%s is not the certificate of an authority", filepath.Join(dir, config.AuthorityFile))
	case time.Now().After(pair.Leaf.NotAfter):
		return authority{}, fmt.Errorf("the authority in %s expired on %s: make a new one in another folder", dir, pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	return authority{cert: pair.Leaf, key: key, pem: text}, nil
}

func newAuthority(name string, valid time.Duration) (certificate, secret []byte, err error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	return sign(template, valid, nil)
}

// ofBroker makes a certificate with which a broker serves, and connects to other brokers.
func (a authority) ofBroker(host string, also []string, valid time.Duration) (certificate, secret []byte, err error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range also {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return sign(template, valid, &a)
}

func (a authority) ofClient(name string, valid time.Duration) (certificate, secret []byte, err error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	return sign(template, valid, &a)
}

// sign completes a certificate with a new key; a nil issuer means self-signed. The certificate expires no later than
// its authority.
func sign(template *x509.Certificate, valid time.Duration, by *authority) (certificate, secret []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits)); err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template.NotBefore, template.NotAfter = now.Add(-earlier), now.Add(valid)
	if by == nil {
		by = &authority{cert: template, key: key}
	} else if template.NotAfter.After(by.cert.NotAfter) {
		template.NotAfter = by.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), nil
}

const (
	forAll   = 0o644
	forOwner = 0o600
	folder   = 0o700
)

type file struct {
	path string
	text []byte
	mode fs.FileMode
}

// write makes new files, and the named folders. If one cannot be created, it removes those that were.
func write(folders []string, files []file) (err error) {
	var made []string
	defer func() {
		for i := len(made) - 1; i >= 0 && err != nil; i-- {
			err = errors.Join(err, os.Remove(made[i]))
		}
	}()
	for _, dir := range folders {
		if err := os.Mkdir(dir, folder); err != nil {
			return explain(dir, err)
		}
		made = append(made, dir)
	}
	for _, f := range files {
		to, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
		if err != nil {
			return explain(f.path, err)
		}
		made = append(made, f.path)
		_, err = to.Write(f.text)
		if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
			return err
		}
	}
	return nil
}

func explain(path string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists, and nothing is replaced: move it away, or give another folder (now %s)", path, filepath.Dir(path))
	}
	return err
}
