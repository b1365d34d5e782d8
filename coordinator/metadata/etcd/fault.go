package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// errSpeaksTLS means that a member requires TLS and received plain text.
var errSpeaksTLS = errors.New("it uses TLS, this broker does not (--rpc-tls-cert)")

// fault returns a short reason why a member does not answer, without the local port: a repeated fault has the same text.
func fault(err error) string {
	if about, is := tlsFault(err); is {
		return about
	}
	if refused, is := errors.AsType[*notAdmittedError](err); is {
		return refused.Error()
	}
	var timeout net.Error
	var name *net.DNSError
	var errno syscall.Errno
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no process listens there"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer"
	case errors.As(err, &name):
		return name.Error()
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "it closes the connection (is TLS configured on one side only? --rpc-tls-cert)"
	case errors.As(err, &errno):
		return errno.Error()
	}
	return withoutRequest(err).Error()
}

// tlsFault is fault for errors of TLS; false for other errors.
func tlsFault(err error) (about string, is bool) {
	var verification *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case errors.Is(err, errSpeaksTLS):
		return errSpeaksTLS.Error(), true
	case errors.Is(err, peertls.ErrName):
		return "TLS: this broker refuses its certificate: " + withoutRequest(err).Error() + " (--rpc-tls-cert, --rpc-tls-name)", true
	case errors.As(err, &verification):
		return "TLS: this broker refuses its certificate: " + refusal(verification.Err), true
	case errors.As(err, &header), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "TLS: it does not use TLS, this broker does (--rpc-tls-cert)", true
	case errors.As(err, &alert) && alert.Op == "remote error":
		return "TLS: it refuses this broker: " + alert.Err.Error() + " (--rpc-tls-cert and --rpc-tls-ca, of both brokers)", true
	case strings.Contains(err.Error(), "tls: "):
		return "TLS: " + withoutRequest(err).Error(), true
	}
	return "", false
}

// refusal returns why a certificate is refused, without Go's guesses, and with the setting to check.
func refusal(err error) string {
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return "x509: certificate signed by unknown authority (--rpc-tls-ca)"
	}
	return err.Error()
}

// withoutRequest returns an error without the failed request: the caller adds the address.
func withoutRequest(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}
