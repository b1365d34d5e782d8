package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/listen"
	"github.com/lockstepmq/lockstep/internal/observe/redact"
)

// secret returns a token or password from the environment or from the file; nil without either. White space around it
// is removed.
func secret(given config.Secret, file string) ([]byte, error) {
	if file == "" && given == "" {
		return nil, nil
	}
	text, from := string(given), "the secret in the environment"
	if file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		text, from = string(b), file
	}
	if text = strings.TrimSpace(text); text == "" {
		return nil, errors.New(from + " is empty")
	}
	return []byte(text), nil
}

// certificateFault returns why other brokers will refuse this broker's certificate at an address: they close the
// connection without a reason, and this broker would only wait for them.
func certificateFault(certFile, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil || certFile == "" {
		return nil
	}
	return judgeCertificate(certFile, host, time.Now())
}

func judgeCertificate(certFile, host string, now time.Time) error {
	c, err := readCertificate(certFile)
	switch {
	case err != nil:
		return err
	case now.Before(c.NotBefore):
		return fmt.Errorf("it is not valid before %s", c.NotBefore.Format(time.RFC3339))
	case now.After(c.NotAfter):
		return fmt.Errorf("it expired on %s", c.NotAfter.Format(time.RFC3339))
	}
	return c.VerifyHostname(host)
}

func readCertificate(file string) (*x509.Certificate, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("the file has no certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// certificate names the files of a certificate of this broker, and their settings.
type certificate struct{ use, certFile, keyFile, certFlag, keyFlag string }

// certificates returns when this broker's certificates expire, by their use, and the reasons why their files could not
// be used if the broker started now. It still uses the certificates that it has read.
func certificates(o config.Options) (ends map[string]time.Time, faults map[string]string) {
	ends, faults = map[string]time.Time{}, map[string]string{}
	for _, c := range []certificate{
		{"client", o.TLSCert, o.TLSKey, "--tls-cert", "--tls-key"},
		{"rpc", o.RPCTLSCert, o.RPCTLSKey, "--rpc-tls-cert", "--rpc-tls-key"},
		{"etcd", o.EtcdTLSCert, o.EtcdTLSKey, "--etcd-tls-cert", "--etcd-tls-key"},
	} {
		if c.certFile == "" {
			continue
		}
		if leaf, err := readCertificate(c.certFile); err == nil {
			ends[c.use] = leaf.NotAfter
		}
		if why := c.fault(); why != "" {
			faults[c.use] = why
		}
	}
	return ends, faults
}

// fault is the reason why the files cannot be used; "" if they can. It has no name of a file: observers read it.
func (c certificate) fault() string {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return fmt.Sprintf("the file of %s cannot be read", c.certFlag)
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return fmt.Sprintf("its private key is missing: the file of %s cannot be read", c.keyFlag)
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		return fmt.Sprintf("the files of %s and %s do not belong together", c.certFlag, c.keyFlag)
	}
	return ""
}

// checked ends --check-config if the settings themselves have no fault.
func checked(o config.Options, warnings []string) int {
	if faults := fileFaults(o); len(faults) > 0 {
		return faulty(faults)
	}
	if err := certificateFault(o.RPCTLSCert, reachable(o.RPCAddress, o.BroadcastAddress)); err != nil { // a start only logs it
		warnings = append(warnings, fmt.Sprintf("other brokers will refuse this one's certificate: %v", err))
	}
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "nsqd: warning:", redact.Text(w))
	}
	fmt.Println("the settings are valid")
	return 0
}

func faulty(lines []string) int {
	for _, line := range lines {
		fmt.Fprintln(os.Stderr, "nsqd:", redact.Text(line))
	}
	return exitUsage
}

// fileFaults returns the faults of the files in the settings that would prevent a start. It creates and changes
// nothing.
func fileFaults(o config.Options) (faults []string) {
	note := func(setting string, err error) {
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", setting, err))
		}
	}
	if o.TLSCert != "" && o.TLSKey != "" {
		_, err := listen.LoadTLS(o.ClientTLS)
		note("--tls-cert, --tls-key, --tls-root-ca-file", err)
	} else {
		_, err := listen.RequestTLS(o.ClientTLS)
		note("--tls-root-ca-file", err)
	}
	_, _, err := loadPeerIdentity(o, nil)
	note("--rpc-tls-cert, --rpc-tls-key, --rpc-tls-ca", err)
	_, err = secret(o.ClusterToken, o.ClusterTokenFile)
	note("--cluster-token-file", err)
	_, err = bootstrapToken(o)
	note("--bootstrap-admin-token-file", err)
	if !o.EmbedsEtcd() {
		_, err = externalTLS(o, nil)
		note("--etcd-tls-cert, --etcd-tls-key, --etcd-tls-ca", err)
		_, err = secret(o.EtcdPassword, o.EtcdPasswordFile)
		note("--etcd-password-file", err)
	}
	note("--data-path", dataPathFault(o.DataPath))
	return faults
}
