package brokerapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// reason is a failure of the network in an operator's words.
type reason struct {
	text  string
	cause error
}

func (r *reason) Error() string { return r.text }
func (r *reason) Unwrap() error { return r.cause }

// Reason says what is wrong with an address, and what to look at, where Go says which of its functions
// failed. The result wraps err. Other errors come back as they are.
func Reason(err error) error {
	if text := reasonOf(err); text != "" {
		return &reason{text, err}
	}
	return err
}

func reasonOf(err error) string {
	var (
		name    *net.DNSError
		address *net.AddrError
		peer    *tls.CertificateVerificationError
		request *url.Error
		record  tls.RecordHeaderError
		timeout net.Error
	)
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: the broker is not started, or has another address"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no way to this address from here"
	case errors.As(err, &name) && name.IsNotFound:
		return "there is no host " + name.Name
	case errors.As(err, &name):
		return "the address of host " + name.Name + " cannot be looked up: the name service does not answer"
	case errors.As(err, &address):
		return "this is no address: it must be host:port"
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &record):
		return "what listens there does not speak TLS: it may be a port without TLS"
	case errors.As(err, &peer):
		return "its certificate is not trusted: " + certificateFault(peer.Err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "it closed the connection without an answer: it may need TLS, or be another port"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "it does not answer in time"
	case strings.Contains(err.Error(), "malformed HTTP"):
		return "what listens there does not speak HTTP: it may be the TCP port (by default HTTP has 4151, TCP 4150)"
	case errors.As(err, &request):
		return request.Err.Error()
	}
	return ""
}

// certificateFault names what to do about the usual faults of certificates.
func certificateFault(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	text := strings.TrimPrefix(err.Error(), "x509: ")
	switch {
	case errors.As(err, &unknown):
		return "no known authority signed it; --tls-root-ca-file names yours"
	case errors.As(err, &name):
		return text + "; use a name that it has"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return text + "; it must be renewed, or a clock is wrong"
	}
	return text
}
