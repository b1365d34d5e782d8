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
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/lockstepmq/lockstep/internal/config"
)

const (
	// authorityKey is the file with the authority's private key, which no broker needs.
	authorityKey = "ca.key"
	// earlier makes a certificate valid on hosts whose clocks are behind.
	earlier = time.Hour
	// serialBits is the length of a random serial number: no two certificates of an authority share one.
	serialBits = 120
)

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte // the file with its certificate, for those whom it certifies
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
		return authority{}, fmt.Errorf("the authority in %s has expired on %s: make a new one in another folder", dir, pair.Leaf.NotAfter.Format(time.DateOnly))
	}
	return authority{cert: pair.Leaf, key: key, pem: text}, nil
}

// newAuthority makes the certificate of an authority, signed by itself.
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

// ofClient makes a certificate with which a user logs in.
func (a authority) ofClient(name string, valid time.Duration) (certificate, secret []byte, err error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	return sign(template, valid, &a)
}

// sign completes a certificate with a new key; by nil it signs itself. It ends with its authority at the latest.
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

// write makes new files, and the folders that are named. If one cannot be made, it removes the others again.
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

// explain says why nothing was written.
func explain(path string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists, and nothing is replaced: move it away, or give another folder (now %s)", path, filepath.Dir(path))
	}
	return err
}
