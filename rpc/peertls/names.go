package peertls

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// anyNode represents the node name in the pattern of names.
const anyNode = "*"

// ErrName means that a certificate of the right authority does not belong to a broker, or belongs to another broker.
var ErrName = errors.New("not the certificate of the broker")

// NotAdmitted is an ErrName about a certificate that would count as a broker's if its name were known.
type NotAdmitted struct {
	text   string
	Advice string // for the broker with this certificate: the reason, and how to have it admitted
}

// Error names the certificate.
func (e *NotAdmitted) Error() string { return ErrName.Error() + ": " + e.text }

// Is makes errors.Is find ErrName.
func (e *NotAdmitted) Is(target error) bool { return target == ErrName }

// Names are the names in the certificates of brokers.
type Names struct {
	prefix, suffix string
	mu             struct {
		sync.Mutex
		nodes   []string        // known by configuration
		members func() []string // nodes known to the embedded etcd; nil = none
		invited func() []string // nodes that an operator has invited for a time; nil = none
	}
}

// NewNames returns the names of a pattern in which * represents the node name; "" is "*". The nodes may
// reach the embedded etcd if the pattern alone does not distinguish brokers from other certificates.
func NewNames(pattern string, nodes ...string) (*Names, error) {
	pattern = cmp.Or(pattern, anyNode)
	n := &Names{}
	var found bool
	if n.prefix, n.suffix, found = strings.Cut(pattern, anyNode); !found || strings.Contains(n.suffix, anyNode) {
		return nil, fmt.Errorf("%q must contain one *, which represents the node name", pattern)
	}
	n.SetNodes(nodes)
	return n, nil
}

// SetNodes replaces the known nodes.
func (n *Names) SetNodes(nodes []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.nodes = slices.Clone(nodes)
}

// SetMembers adds the nodes that f returns at each check.
func (n *Names) SetMembers(f func() []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.members = f
}

// SetInvited adds the nodes that f returns at each check.
func (n *Names) SetInvited(f func() []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.invited = f
}

// AdmitsByPattern reports whether the pattern alone distinguishes brokers: then every broker with a
// certificate is admitted, and SetNodes, SetMembers and SetInvited have no effect.
func (n *Names) AdmitsByPattern() bool { return n.prefix+n.suffix != "" }

// Of returns the DNS name that a node's certificate must have.
func (n *Names) Of(node string) string { return n.prefix + node + n.suffix }

// Check returns ErrName unless the certificate belongs to the node.
func (n *Names) Check(cert *x509.Certificate, node string) error {
	if !slices.Contains(cert.DNSNames, n.Of(node)) && !n.isAll(cert) {
		return fmt.Errorf("%w: %s lacks the DNS name %q of broker %q", ErrName, describe(cert), n.Of(node), node)
	}
	return bothEnds(cert)
}

// isAll reports whether the certificate belongs to all brokers: its name is the pattern itself, as a wildcard.
func (n *Names) isAll(cert *x509.Certificate) bool {
	return n.prefix == "" && strings.HasPrefix(n.suffix, ".") && slices.Contains(cert.DNSNames, n.Of(anyNode))
}

// CheckAny returns ErrName unless the certificate belongs to some broker. A *NotAdmitted contains the reason to send to
// the other side.
func (n *Names) CheckAny(cert *x509.Certificate) error {
	if n.AdmitsByPattern() {
		for _, name := range cert.DNSNames {
			if len(name) > len(n.prefix)+len(n.suffix) && strings.HasPrefix(name, n.prefix) && strings.HasSuffix(name, n.suffix) {
				return bothEnds(cert)
			}
		}
		return notAdmitted(cert, fmt.Sprintf("%s has no DNS name like %q", describe(cert), n.Of(anyNode)),
			fmt.Sprintf("its certificate has no DNS name like %q (--rpc-tls-name)", n.Of(anyNode)))
	}
	known := n.known()
	for _, name := range cert.DNSNames {
		if slices.Contains(known, name) {
			return bothEnds(cert)
		}
	}
	return notAdmitted(cert, fmt.Sprintf("%s names none of the known brokers %q", describe(cert), known),
		fmt.Sprintf("no broker with a name of its certificate, %s, is a member or invited: run nsqctl cluster invite NODE-NAME at the cluster that runs", shown("%q", cert.DNSNames)))
}

// notAdmitted refuses a certificate because of its names. The other side learns the reason only if the certificate is
// valid for both ends of a connection, which means that it was issued for a broker.
func notAdmitted(cert *x509.Certificate, text, advice string) error {
	if bothEnds(cert) != nil {
		return fmt.Errorf("%w: %s", ErrName, text)
	}
	return &NotAdmitted{text: text, Advice: advice}
}

// shown shortens a text about a certificate for a log line.
func shown(format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	if len(text) > maxShown {
		text = text[:maxShown] + "…"
	}
	return text
}

func (n *Names) known() []string {
	n.mu.Lock()
	nodes, more := slices.Clone(n.mu.nodes), []func() []string{n.mu.members, n.mu.invited}
	n.mu.Unlock()
	for _, f := range more {
		if f != nil {
			nodes = append(nodes, f()...)
		}
	}
	nodes = slices.DeleteFunc(nodes, func(s string) bool { return s == "" })
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// bothEnds refuses a certificate that is issued for one end of a connection only. A broker is both client and server
// for its peers, while in most installations a client's certificate is not valid for a server.
func bothEnds(cert *x509.Certificate) error {
	if len(cert.ExtKeyUsage)+len(cert.UnknownExtKeyUsage) == 0 || slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return nil
	}
	for usage, name := range map[x509.ExtKeyUsage]string{x509.ExtKeyUsageServerAuth: "serverAuth", x509.ExtKeyUsageClientAuth: "clientAuth"} {
		if !slices.Contains(cert.ExtKeyUsage, usage) {
			return fmt.Errorf("%w: %s lacks the extended key usage %s", ErrName, describe(cert), name)
		}
	}
	return nil
}

// maxShown bounds the names of a certificate in a log line.
const maxShown = 256

// describe names a certificate in a log line.
func describe(cert *x509.Certificate) string {
	return fmt.Sprintf("%s (serial %s)", shown("certificate %q with DNS names %q", cert.Subject.String(), cert.DNSNames), cert.SerialNumber)
}
