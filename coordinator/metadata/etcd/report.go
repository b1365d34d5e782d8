package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
)

const membersPath = "/members"

// reportMessage is the answer of a member at reportPath, as JSON. Fields are only added.
type reportMessage struct {
	Cluster string `json:"cluster"` // Options.ClusterToken
	Name    string `json:"name"`
	Run     string `json:"run"` // random, of this process
	lifecycle.Report
	ClientURLs []string `json:"client_urls,omitempty"` // of the known members that have run
}

// maxAdvice bounds the reason reported by another member in this member's log.
const maxAdvice = 1 << 10

// printable replaces characters that do not belong in a log line.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// client returns a client for the peer ports of other members, and a function that closes its connections.
func (o Options) client(timeout time.Duration) (c *http.Client, done func()) {
	transport := &http.Transport{TLSClientConfig: o.clientTLS()}
	return &http.Client{Transport: transport, Timeout: timeout}, transport.CloseIdleConnections
}

func get(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// askReport requests the report of the member at a peer URL.
func askReport(ctx context.Context, client *http.Client, peerURL, from string) (m reportMessage, err error) {
	target := strings.TrimSuffix(peerURL, "/") + reportPath + "?from=" + url.QueryEscape(from)
	resp, err := get(ctx, client, target)
	if err != nil {
		return m, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return m, json.NewDecoder(io.LimitReader(resp.Body, maxMembersReply)).Decode(&m)
	case http.StatusForbidden:
		advice, _ := io.ReadAll(io.LimitReader(resp.Body, maxAdvice)) // on an error, show the part that was read
		return m, errors.New("it refuses this broker: " + cmp.Or(printable(string(advice)), "it does not say why"))
	case http.StatusBadRequest: // the answer of Go's server to a request without TLS
		if body, _ := io.ReadAll(io.LimitReader(resp.Body, maxMembersReply)); strings.Contains(string(body), "HTTPS server") {
			return m, errSpeaksTLS
		}
	}
	return m, fmt.Errorf("etcd: %s: %s", peerURL, resp.Status)
}

// round holds the answers of the other members to one round of queries.
type round struct {
	reports       map[string]lifecycle.Report
	clientURLs    []string              // client URLs of the running members
	foundation    *lifecycle.Foundation // foundation of the running cluster
	otherClusters []string              // members of another cluster, one sentence each
	faults        map[string]string     // why members did not answer, by name
	self          string                // why this member refuses its own certificate, "" if it accepts it
	twin          string                // set if another process answers at this member's address: that address
}

// askLimit bounds a round of queries. A member whose disk allows it to vote waits no longer than a running member needs
// to answer, so that a dead host does not delay the restart of a broker by seconds.
func (s *starter) askLimit() time.Duration {
	if s.doubt == lifecycle.DoubtNone && s.hadLog {
		return s.o.promptAnswer
	}
	return s.o.answerTimeout
}

// ask queries all members, and this member's own address, in parallel. It omits a member that does not answer within askLimit.
func (s *starter) ask(ctx context.Context) round {
	client, done := s.o.client(s.askLimit())
	defer done()
	r := round{reports: map[string]lifecycle.Report{}, faults: map[string]string{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, address := range s.members {
		wg.Go(func() { // ends with the requests
			m, err := askReport(ctx, client, address, s.o.Name)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil && name == s.o.Name:
				r.self, _ = tlsFault(err)
			case err != nil:
				r.faults[name] = fault(err)
			case name == s.o.Name && m.Run != s.run:
				r.twin = address
			case name == s.o.Name:
			case m.Cluster != s.o.ClusterToken || m.Name != name:
				r.otherClusters = append(r.otherClusters, fmt.Sprintf("%s answers as %s of cluster %q", address, m.Name, m.Cluster))
			default:
				r.add(name, m)
			}
		})
	}
	wg.Wait()
	slices.Sort(r.otherClusters)
	return r
}

func (r *round) add(name string, m reportMessage) {
	r.reports[name] = m.Report
	if m.Running {
		r.clientURLs = append(r.clientURLs, m.ClientURLs...)
		if m.Foundation != nil {
			r.foundation = m.Foundation
		}
	}
}

// report returns this member's report for another member.
func (s *starter) report(to string) reportMessage {
	node := s.o.Node.Record()
	m := reportMessage{
		Cluster: s.o.ClusterToken, Name: s.o.Name, Run: s.run,
		Report: lifecycle.Report{
			DiskState: node.State(), Foundation: node.Foundation, Started: node.Started || s.hadLog, Members: s.members,
			SeenYou: node.Seen[to], Seen: node.Seen,
		},
	}
	if server := s.server.Load(); server != nil {
		m.Started, m.Votes, m.Running = true, true, server.running()
		for _, known := range server.etcd.Server.Cluster().Members() {
			m.ClientURLs = append(m.ClientURLs, known.ClientURLs...)
		}
	}
	return m
}

// running reports whether the member in this process has a leader.
func (s *Server) running() bool {
	return isClosed(s.Ready()) && s.etcd.Server.Leader() != 0
}

// askMembers returns the list of members of the etcd at a peer URL.
func askMembers(ctx context.Context, client *http.Client, peerURL string) ([]member, error) {
	resp, err := get(ctx, client, strings.TrimSuffix(peerURL, "/")+membersPath)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("etcd: %s: %s", peerURL, resp.Status)
	}
	var members []member
	err = json.NewDecoder(io.LimitReader(resp.Body, maxMembersReply)).Decode(&members)
	return members, err
}
