package etcdserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

const (
	// foundingPoll separates questions to the other members.
	foundingPoll = 100 * time.Millisecond
	// foundingPatience is how long the rest is waited for when a majority has no
	// directory: one of them may be down, or know the cluster.
	foundingPatience = 5 * time.Second
	// emptyTimeout bounds a request to a member that has no directory yet.
	emptyTimeout = 5 * time.Second
)

// hearOthers asks the other members until one tells who is in the cluster, and
// prefers the word of one that knows that it runs: who has slept since it was made
// does not. Or until all of them, or a majority for a while, have no directory:
// then it gives nil, and the cluster is founded. A member that hears nobody cannot
// tell a cluster that is being made from one that it has forgotten, so it waits;
// and tells who asks that it has no directory either.
func (o Options) hearOthers(ctx context.Context, own string, security *tls.Config, log logrus.FieldLogger) ([]member, error) {
	stop, err := o.tellEmpty(security)
	if err != nil {
		return nil, err
	}
	defer stop()
	others, began, said := len(o.others()), time.Now(), false
	empty := map[string]bool{}
	for {
		var founding []member
		for r := range o.askEach(ctx, security) {
			switch {
			case runs(r.members, own):
				return r.members, nil
			case len(r.members) > 0:
				founding = r.members
			default:
				empty[r.name] = true
			}
		}
		if founding != nil {
			return founding, nil
		}
		waited := time.Since(began)
		if len(empty) == others || len(empty) >= (others+1)/2 && waited > foundingPatience {
			return nil, nil
		}
		if waited > foundingPatience && !said {
			said = true
			log.Info("no metadata directory, and too few other brokers answer to make one: waiting for them")
		}
		select {
		case <-time.After(foundingPoll):
		case <-ctx.Done():
			return nil, fmt.Errorf("etcdserver: no directory, and too few other members answer: %w", ctx.Err())
		}
	}
}

// tellEmpty answers at the peer address that there are no members, until stopped.
func (o Options) tellEmpty(security *tls.Config) (stop func(), err error) {
	l, err := net.Listen("tcp", o.PeerAddress)
	if err != nil {
		return nil, fmt.Errorf("etcdserver: listen for other members: %w", err)
	}
	if security != nil {
		c, err := o.TLS.transport().ServerConfig()
		if err != nil {
			_ = l.Close()
			return nil, fmt.Errorf("etcdserver: TLS files: %w", err)
		}
		l = tls.NewListener(l, c)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /members", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("[]")) })
	s := &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0), ReadTimeout: emptyTimeout, WriteTimeout: emptyTimeout}
	done := make(chan struct{})
	go func() { _ = s.Serve(l); close(done) }() // ends with stop
	return func() { _ = s.Close(); <-done }, nil
}

// reply is what a member that was reached said; no members: it has no directory.
type reply struct {
	name    string
	members []member
}

// askEach asks all other members at once; the channel is closed when each has
// answered or had its time.
func (o Options) askEach(ctx context.Context, security *tls.Config) <-chan reply {
	others := o.others()
	replies := make(chan reply, len(others))
	transport := &http.Transport{TLSClientConfig: security}
	client := &http.Client{Transport: transport, Timeout: askTimeout}
	var wg sync.WaitGroup
	for name, address := range others {
		wg.Go(func() { // ends with the request
			if members, err := ask(ctx, client, address); err == nil {
				replies <- reply{name, members}
			}
		})
	}
	go func() { // ends after those
		wg.Wait()
		transport.CloseIdleConnections()
		close(replies)
	}()
	return replies
}

// askOthers gives the membership as the first other member that answers has it.
func (o Options) askOthers(ctx context.Context, security *tls.Config) []member {
	asking, enough := context.WithCancel(ctx)
	defer enough()
	for r := range o.askEach(asking, security) {
		if len(r.members) > 0 {
			return r.members
		}
	}
	return nil
}

// others are the peer URLs of the other members of the initial cluster, by name.
func (o Options) others() map[string]string {
	others := map[string]string{}
	for item := range strings.SplitSeq(o.InitialCluster, ",") {
		if name, address, ok := strings.Cut(strings.TrimSpace(item), "="); ok && name != o.Name {
			others[name] = address
		}
	}
	return others
}
