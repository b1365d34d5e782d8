package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// explainEvery is the pause between two explanations why there is no majority. A normal start ends before the first one.
const explainEvery = time.Second

// Missing explains why the metadata does not answer: which members do not run, and why this one cannot reach them. It
// queries all other members within Options.answerTimeout.
func (s *Server) Missing(ctx context.Context) string {
	voters := slices.DeleteFunc(s.etcd.Server.Cluster().Members(), func(m *membership.Member) bool { return m.IsLearner })
	slices.SortFunc(voters, func(a, b *membership.Member) int { return cmp.Compare(nameOf(a), nameOf(b)) })
	self := s.etcd.Server.MemberID()
	needed, running := len(voters)/2+1, 0
	var silent, why []string
	faults := s.askVoters(ctx, voters)
	for i, m := range voters {
		switch {
		case m.ID == self || faults[i] == "":
			running++
		default:
			silent = append(silent, nameOf(m))
			why = append(why, fmt.Sprintf("%s at %s: %s", nameOf(m), strings.Join(m.PeerURLs, " "), faults[i]))
		}
	}
	if running >= needed {
		state := "and have no leader yet"
		if leader := s.leaderAmong(voters, faults); leader != "" {
			state = fmt.Sprintf("%s leads them, and this one does not answer yet: it has applied %d of %d changes", leader, s.etcd.Server.AppliedIndex(), s.etcd.Server.CommittedIndex())
		}
		return sentence(silent, fmt.Sprintf("%d of %d members of the metadata run, %s", running, len(voters), state), why)
	}
	return sentence(silent, fmt.Sprintf("%d of %d members of the metadata run, %d are needed", running, len(voters), needed), why)
}

// leaderAmong is the name of this member's leader; "" if it has none, or the leader does not answer.
func (s *Server) leaderAmong(voters []*membership.Member, faults []string) string {
	for i, m := range voters {
		if m.ID == s.etcd.Server.Leader() && faults[i] == "" {
			return nameOf(m)
		}
	}
	return ""
}

// askVoters returns for each voter why it does not contribute to a majority; "" if it does.
func (s *Server) askVoters(ctx context.Context, voters []*membership.Member) (faults []string) {
	faults = make([]string, len(voters))
	client, done := s.options.client(s.options.answerTimeout)
	defer done()
	var queries sync.WaitGroup
	for i, m := range voters {
		if m.ID == s.etcd.Server.MemberID() || len(m.PeerURLs) == 0 {
			continue
		}
		queries.Go(func() { // ends with the request
			r, err := askReport(ctx, client, m.PeerURLs[0], s.options.Name)
			switch {
			case err != nil:
				faults[i] = fault(err)
			case m.Name != "" && r.Name != m.Name || s.options.cluster != "" && r.Cluster != s.options.cluster:
				faults[i] = fmt.Sprintf("there is %s of cluster %q", r.Name, r.Cluster)
			case !r.Votes && s.saw(r, lifecycle.DiskState.OtherLife):
				faults[i] = "it waits, because this broker runs on an old copy of its disk, and so the metadata has two histories; its /readyz has the choice"
			case !r.Votes && s.saw(r, lifecycle.DiskState.LaterThan):
				faults[i] = "it waits, because this broker runs on an old copy of its disk; stop this broker, start it with an empty data path"
			case !r.Votes:
				faults[i] = "it waits too; its /readyz has the reason"
			}
		})
	}
	queries.Wait()
	return faults
}

// saw compares the state in which another member saw this member's disk with the current state.
func (s *Server) saw(r reportMessage, compare func(seen, now lifecycle.DiskState) bool) bool {
	return s.options.Node != nil && compare(r.SeenYou, s.options.Node.Record().State())
}

// notifyMissing passes the reason why there is no majority to Options.Waiting, repeatedly, until ctx ends.
func (s *Server) notifyMissing(ctx context.Context) {
	for concurrency.Sleep(ctx, explainEvery) {
		if why := s.Missing(ctx); ctx.Err() == nil {
			s.options.Waiting(why)
		}
	}
}

func nameOf(m *membership.Member) string {
	if m.Name == "" { // the member has never run
		return "the member at " + strings.Join(m.PeerURLs, " ")
	}
	return m.Name
}

// sentence joins the missing members, the reason, and the fault of each.
func sentence(missing []string, why string, each []string) string {
	if len(missing) > 0 {
		why = "waiting for " + strings.Join(missing, ", ") + ": " + why
	}
	if len(each) > 0 {
		why += " (" + strings.Join(each, "; ") + ")"
	}
	return why
}

// errSpeaksTLS means that a member requires TLS and received plain text.
var errSpeaksTLS = errors.New("it uses TLS, this broker does not (--rpc-tls-cert)")

// fault returns a short reason why a member does not answer, without the local port: a repeated fault has the same text.
func fault(err error) string {
	if about, is := tlsFault(err); is {
		return about
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

// refusal returns why a certificate is refused, without Go's guesses, and with the setting that the operator should
// check.
func refusal(err error) string {
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return "x509: certificate signed by unknown authority (--rpc-tls-ca)"
	}
	return err.Error()
}

// withoutRequest returns an error without the failed request: the caller adds the address.
func withoutRequest(err error) error {
	if request, ok := errors.AsType[*url.Error](err); ok {
		return request.Err
	}
	return err
}
