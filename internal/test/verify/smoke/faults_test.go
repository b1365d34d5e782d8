package smoke

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// load is how many messages pass before and after each fault.
const load = 80

// faults: producers at every broker and a consumer, while the leader is killed and another broker
// is stopped. Every message that is acknowledged is delivered, and none that nobody published.
func (s *smoke) faults() {
	s.Create(e2etest.Topic, e2etest.Channel, 2)
	sink := s.Consume(e2etest.Topic, e2etest.Channel)
	const plenty, perSecond = 100_000, 150
	feed := e2etest.NewFeed(e2etest.Numbered("m", plenty), 0)
	l := s.Put(e2etest.Topic, feed, 2)
	s.T.Cleanup(feed.Pace(perSecond))
	l.WaitAcked(load)

	victim := s.Leader(e2etest.Topic)
	s.Crash(victim)
	l.WaitProgress(load)
	s.Restart(victim)
	s.Whole(e2etest.Topic)

	victim = s.Other(s.Leader(e2etest.Topic)).Name
	l.WaitProgress(load)
	s.Down.Begin(victim)
	require.NoError(s.T, s.Stop(victim, wait.Limit))
	l.WaitProgress(load)
	s.Restart(victim)
	s.Whole(e2etest.Topic)
	l.WaitProgress(load)

	feed.End()
	l.Wait()
	sink.WaitDistinct(len(l.Published()))
	s.Drained(e2etest.Topic, e2etest.Channel)
	l.Judge(sink)
	s.ctl("check", e2etest.Topic, "--wait", "2m")
}

// holds fills a topic, and returns the check of what it must have after all brokers were down: its
// messages, those that a channel has not finished, a deferred one, and the pause of a channel.
func (s *smoke) holds(topic string) (check func()) {
	s.T.Helper()
	waiting := e2etest.Numbered(topic, 30)
	s.topic(topic, []string{"--partitions", "3"}, "keep", "other")
	for i, body := range waiting {
		s.post(s.Brokers[i%3], "/pub?topic="+topic, body, "X-Nsq-Message-Id", body)
	}
	s.post(s.Brokers[0], "/pub?topic="+topic+"&defer=3000000", "much later", "X-Nsq-Message-Id", "later")
	finished := s.finish(topic, "keep", len(waiting)/2)
	s.ctl("channel", "pause", topic, "other")
	before := bodies(s.Cluster, topic)
	require.Len(s.T, before, len(waiting)+1)
	return func() {
		s.T.Helper()
		s.Whole(topic)
		require.Equal(s.T, before, bodies(s.Cluster, topic))
		var rest []string
		for _, body := range waiting {
			if !finished[body] {
				rest = append(rest, body)
			}
		}
		s.tail(topic, "keep", rest)
		var deferred struct{ Messages []any }
		require.NoError(s.T, json.Unmarshal([]byte(s.get(s.Brokers[0], query("/v1/channel/deferred", topic, "keep"))), &deferred))
		require.Len(s.T, deferred.Messages, 1)
		require.Contains(s.T, s.get(s.Brokers[1], query("/v1/console/channel", topic, "other")), `"paused":true`)
	}
}

// finish takes and finishes at least n messages of a channel.
func (s *smoke) finish(topic, channel string, n int) (finished map[string]bool) {
	s.T.Helper()
	finished = map[string]bool{}
	for len(finished) < n {
		for _, m := range s.poll(s.Brokers[0], topic, channel, n-len(finished)) {
			s.until("finish", func() error {
				status, text, err := s.ask(s.Brokers[0], http.MethodPost, query("/v1/finish", topic, channel, "receipt", m.Receipt), "")
				if err == nil && status != http.StatusOK && status != http.StatusConflict { // conflict: an earlier attempt finished it, or it comes again
					err = fmt.Errorf("%d %s", status, text)
				}
				finished[m.Body] = status == http.StatusOK
				return err
			})
			if !finished[m.Body] {
				delete(finished, m.Body)
			}
		}
	}
	return finished
}

// stopAll: every broker is stopped in order, and started again.
func (s *smoke) stopAll() {
	check := s.holds("stopped")
	require.NoError(s.T, s.StopAll(wait.Limit))
	require.NoError(s.T, s.StartAll())
	s.WaitReady()
	check()
}

// killAll: every broker is killed at once, and started again. Users and rights are there as well.
func (s *smoke) killAll() {
	check := s.holds("killed")
	s.CrashAll()
	require.NoError(s.T, s.StartAll())
	s.WaitReady()
	s.Back()
	check()
	s.answers(s.Brokers[2], "/pub?topic=letters", http.StatusForbidden, "Authorization", "Bearer "+s.shop)
}

// users: from the first user on, each client needs a token, and may do what its user was granted.
func (s *smoke) users() {
	t := s.T
	b := s.Brokers[0]
	var made struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(s.ctl("user", "create", "root", "--admin", "-o", "json")), &made))
	s.root.Setenv("LOCKSTEP_TOKEN", made.Token)
	s.token.Store(&made.Token)
	require.Contains(t, s.ctl("user", "list"), "root")
	var shop struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(s.post(b, "/v1/user/create?name=shop", "")), &shop))
	s.shop = shop.Token
	s.ctl("acl", "grant", "shop", "--topic", "shop.*", "--rights", "publish,consume")
	s.topic("shop.sales", []string{"--partitions", "2"}, "till")

	for _, b := range s.Brokers {
		anonymous := s.producer(b, config())
		s.refused("Auth Required", func() error { return anonymous.p.Publish("shop.sales", []byte("stolen")) })
		s.answers(b, "/pub?topic=shop.sales", http.StatusUnauthorized, "Authorization", "")
	}
	member := config()
	member.AuthSecret, member.TlsV1, member.TlsConfig = s.shop, true, s.ca.Client("")
	var want []string
	for _, b := range s.Brokers {
		p := s.producer(b, member)
		p.publish("shop.sales", "sold at "+b.Name)
		want = append(want, "sold at "+b.Name)
		s.refused("E_UNAUTHORIZED", func() error { return p.p.Publish("letters", []byte("forbidden")) })
	}
	secret := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(secret, []byte(s.shop), 0o600))
	secure := []string{"--token-file", secret, "--tls-root-ca-file", s.ca.File("ca.pem"), "--nsqd-tcp-address", s.Brokers[1].TCP, "--nsqd-http-address", s.Brokers[1].HTTPS}
	s.until("pub", func() error {
		_, err := s.run("sold by nsqctl\n", append([]string{"pub", "--topic", "shop.sales", "--timeout", "1m", "--retry", "2m"}, secure...)...)
		return err
	})
	want = append(want, "sold by nsqctl")
	s.ctl("channel", "create", "shop.sales", "office", "--from", "earliest")
	s.tail("shop.sales", "office", want, secure...)

	tailed := map[string]bool{}
	for len(tailed) < len(want) {
		flags := []string{"--topic=shop.sales", "--channel=till", fmt.Sprint("-n=", len(want)-len(tailed)), "--consumer-opt=auth_secret," + s.shop, "--consumer-opt=tls_v1,true", "--consumer-opt=tls_root_ca_file," + s.ca.File("ca.pem")}
		for _, b := range s.Brokers {
			flags = append(flags, "--nsqd-tcp-address="+b.TCP)
		}
		_, end := s.tool("", "nsq_tail", append(flags, patient...)...)
		text, err := end()
		require.NoError(t, err)
		for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
			require.Contains(t, want, line)
			tailed[line] = true
		}
	}
}

// refused waits until a put fails for that reason, and for no other one.
func (s *smoke) refused(why string, put func() error) {
	s.T.Helper()
	s.until("a refusal with "+why, func() error {
		err := put()
		if err == nil {
			return errors.New("accepted")
		}
		if !strings.Contains(err.Error(), why) {
			return err
		}
		return nil
	})
}
