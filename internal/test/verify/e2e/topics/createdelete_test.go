package topics

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

// TestKillsDuringCreateAndDelete kills brokers at random while clients make and
// delete topics and channels: what was made is there with all its messages, what
// was deleted does not come back, what had no answer is whole or not there at
// all. LOCKSTEP_SEED and LOCKSTEP_KILLS choose other kills, and how many.
func TestKillsDuringCreateAndDelete(t *testing.T) {
	t.Parallel()
	seed := env.Number(t, "LOCKSTEP_SEED", int(time.Now().Unix()))
	for _, x := range []struct{ brokers, kills int }{{1, e2etest.Rounds(7, 800)}, {3, e2etest.Rounds(5, 200)}} {
		t.Run(fmt.Sprintf("%d brokers", x.brokers), func(t *testing.T) {
			killsDuringCreateAndDelete(t, x.brokers, env.Number(t, "LOCKSTEP_KILLS", x.kills), uint64(seed))
		})
	}
}

func killsDuringCreateAndDelete(t *testing.T, brokers, kills int, seed uint64) {
	c := e2etest.Start(t, brokers, "--auto-create-topics=false", "--delete-grace=2s") // what is deleted is gone at the end
	random := rand.New(rand.NewPCG(seed, 0))
	m := startMakers(c, 4, seed)
	for done := 0; done < kills; {
		e2etest.Pause(time.Duration(random.IntN(300)) * time.Millisecond)
		victims := e2etest.Names(c)
		random.Shuffle(brokers, func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
		victims = victims[:1+random.IntN(brokers)]
		for _, name := range victims {
			c.Crash(name)
		}
		for _, name := range victims {
			require.NoError(t, c.Start(name))
		}
		for _, name := range victims {
			c.ReadyAgain(name)
		}
		done += len(victims)
		m.judge(fmt.Sprintf("seed %d, kill %d", seed, done))
	}
	m.stop()
	m.judge("at the end")
	ids := m.requireUsable()
	m.requireNothingElse(ids)
	t.Logf("seed %d: %d kills, %s", seed, kills, m)
}

// String counts what the clients know.
func (m *makers) String() string {
	topics, channels := map[standing]int{}, map[standing]int{}
	for s := range m.subjects() {
		topics[s.topic]++
		for _, is := range s.channels {
			channels[is]++
		}
	}
	return fmt.Sprintf("%d topics are there, %d were deleted; %d channels are there, %d were deleted",
		topics[there], topics[gone], channels[there], channels[gone])
}

// subjects goes through the topics of all clients.
func (m *makers) subjects() func(yield func(*subject) bool) {
	return func(yield func(*subject) bool) {
		for _, one := range m.all {
			for _, s := range one.subjects {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// judge compares what all brokers show with what the clients know, while no client
// asks. A request without an answer has from now on the outcome that judge finds.
func (m *makers) judge(when string) {
	m.c.T.Helper()
	m.look.Lock()
	defer m.look.Unlock()
	select {
	case what := <-m.faults:
		m.c.T.Fatalf("%s: %s", when, what)
	default:
	}
	for _, b := range m.c.Brokers {
		var wrong string
		deadline := time.Now().Add(e2etest.WaitLimit)
		for wrong = m.differs(b); wrong != ""; wrong = m.differs(b) {
			if time.Now().After(deadline) {
				m.c.T.Fatalf("%s: %s: %s", when, b.Name, wrong)
			}
			e2etest.Pause(e2etest.PollEvery)
		}
	}
	m.settle()
}

// differs says how a broker's metadata contradict what the clients know.
func (m *makers) differs(b devcluster.Broker) string {
	found, err := m.found(b)
	if err != nil {
		return err.Error()
	}
	for s := range m.subjects() {
		channels, ok := found[s.name]
		if s.topic == there && !ok || s.topic == gone && ok {
			return fmt.Sprintf("topic %s: listed %t", s.name, ok)
		}
		for name, is := range s.channels {
			listed := slices.Contains(channels, name)
			if ok && (is == there && !listed || is == gone && listed) {
				return fmt.Sprintf("topic %s, channel %s: listed %t", s.name, name, listed)
			}
		}
	}
	return ""
}

// found are the channels of all topics, as one broker lists them.
func (m *makers) found(b devcluster.Broker) (map[string][]string, error) {
	var listed struct{ Topics []string }
	if err := m.c.Get(b, "/topics", &listed); err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, topic := range listed.Topics {
		var of struct{ Channels []string }
		if err := m.c.Get(b, "/channels?topic="+topic, &of); err != nil {
			return nil, err
		}
		all[topic] = of.Channels
	}
	return all, nil
}

// settle takes what is not known for what it is.
func (m *makers) settle() {
	m.c.T.Helper()
	found, err := m.found(m.c.Brokers[0])
	require.NoError(m.c.T, err)
	is := map[bool]standing{true: there, false: gone}
	for s := range m.subjects() {
		channels, ok := found[s.name]
		if s.topic == asked {
			s.topic = is[ok]
		}
		for name := range s.channels {
			if s.channels[name] == asked {
				s.channels[name] = is[slices.Contains(channels, name)]
			}
		}
	}
}

// requireUsable requires that every existing topic takes a put and delivers all
// acknowledged messages, and that no other topic takes a put. It returns the ids of the
// existing ones.
func (m *makers) requireUsable() (ids []ident.TopicID) {
	m.c.T.Helper()
	for s := range m.subjects() {
		if s.topic == gone {
			status, text := m.all[0].request("/pub", url.Values{"topic": {s.name}}, "nothing")
			require.Equal(m.c.T, http.StatusNotFound, status, "put to %s, which was deleted: %s", s.name, text)
			continue
		}
		m.c.Whole(s.name)
		v, _ := m.c.Topic(s.name)
		ids = append(ids, v.ID)
		last := record.Attempt(record.Now(), e2etest.PutOnce(m.c.Brokers[0], s.name, "last"))
		s.puts = append(s.puts, &judge.Put{Bodies: []string{"last"}, Attempts: []judge.Attempt{last}})
		require.Equal(m.c.T, judge.OK, last.Answer, s.name)
		m.requireChannels(s)
		if s.channels["kept"] == there {
			m.requireDelivered(s)
		}
	}
	return ids
}

// requireChannels requires that the leader serves the channels of the metadata: no
// deleted channel holds the log.
func (m *makers) requireChannels(s *subject) {
	m.c.T.Helper()
	var want []string
	for name, is := range s.channels {
		if is == there {
			want = append(want, name)
		}
	}
	var have map[string]bool
	defer func() {
		if m.c.T.Failed() {
			m.c.T.Logf("topic %s: channels %v at the leader, want %v", s.name, have, want)
		}
	}()
	m.c.Until("the channels of "+s.name+" at its leader", func() bool {
		have = map[string]bool{}
		for _, b := range m.c.Brokers {
			var stats struct{ Topics []api.TopicStats }
			if m.c.Get(b, "/stats?format=json&topic="+s.name, &stats) != nil {
				return false
			}
			for _, t := range stats.Topics {
				for _, ch := range t.Channels {
					have[ch.ChannelName] = true
				}
			}
		}
		return !slices.ContainsFunc(slices.Collect(maps.Keys(have)), func(name string) bool { return !slices.Contains(want, name) })
	})
}

// requireDelivered requires all messages of a topic's first channel.
func (m *makers) requireDelivered(s *subject) {
	m.c.T.Helper()
	acknowledged := 0
	for _, put := range s.puts {
		if put.Acknowledged() {
			acknowledged++
		}
	}
	k := m.c.Consume(s.name, "kept")
	k.WaitDistinct(acknowledged)
	m.c.Drained(s.name, "kept")
	k.Stop()
	k.Judge(s.puts)
}

// requireNothingElse requires that there are messages and keys of existing topics only.
// The folder of a failed creation stays, empty.
func (m *makers) requireNothingElse(ids []ident.TopicID) {
	m.c.T.Helper()
	var left []string
	defer func() {
		if m.c.T.Failed() {
			m.c.T.Logf("left over: %v", left)
		}
	}()
	e2etest.Within(m.c.T, time.Duration(e2etest.Rounds(1, 2))*e2etest.WaitLimit, "nothing of a topic that is not there", func() bool {
		left = append(m.keys(), m.segments()...)
		left = slices.DeleteFunc(left, func(name string) bool {
			return slices.ContainsFunc(ids, func(id ident.TopicID) bool { return strings.Contains(name, id.String()) })
		})
		return len(left) == 0
	})
}

// segments are those of the topics on all disks.
func (m *makers) segments() (all []string) {
	m.c.T.Helper()
	for _, b := range m.c.Brokers {
		of, err := filepath.Glob(filepath.Join(b.DataDir, "topics", "*", "*", "*.seg"))
		require.NoError(m.c.T, err)
		all = append(all, of...)
	}
	return all
}

// keys are those of the partitions in etcd; in a long run, which waits until the
// tombstones are dropped, of the channels too.
func (m *makers) keys() (all []string) {
	m.c.T.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.c.Brokers[0].Etcd}, Logger: zap.NewNop()})
	require.NoError(m.c.T, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(m.c.T.Context(), e2etest.StartLimit)
	defer cancel()
	got, err := client.Get(ctx, "/lockstep/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(m.c.T, err)
	for _, kv := range got.Kvs {
		if key := string(kv.Key); strings.Contains(key, "/partitions/") || env.Long() && strings.Contains(key, "/channels/") {
			all = append(all, key)
		}
	}
	return all
}
