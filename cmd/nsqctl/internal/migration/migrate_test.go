package migration

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/stockdata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// TestMigrationErrors: each wrong use has a message of its own.
func TestMigrationErrors(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nsqd.dat"), []byte(`{"topics":[]}`), 0o600))
	state := filepath.Join(t.TempDir(), "state.json")
	require.NoError(t, os.WriteFile(state, []byte(`{"v":2}`), 0o600))
	for want, args := range map[string][]string{
		"the stock cluster is missing":                         {"migrate", "run"},
		"exclude each other":                                   {"migrate", "status", "--from-lookupd-http-address=a", "--from-nsqd-http-address=b"},
		"--max-in-flight must be 1 to 2500":                    {"migrate", "run", "--from-nsqd-http-address=b", "--max-in-flight=0"},
		`there is no command "nsqctl migrate start"`:           {"migrate", "start"},
		"accepts 1 arg(s), received 0":                         {"import-nsqd"},
		"no nsqd.dat: it is not the data path of a stock nsqd": {"import-nsqd", t.TempDir(), "--dry-run"},
		"nothing: no such file or directory":                   {"import-nsqd", "nothing"},
		"is not the state of an import":                        {"import-nsqd", dir, "--state", state},
		"nsqd 127.0.0.1:1: nothing listens there":              {"migrate", "status", "--from-nsqd-http-address=127.0.0.1:1"},
		"nsqlookupd 127.0.0.1:1: nothing listens there":        {"migrate", "run", "--from-lookupd-http-address=127.0.0.1:1"},
	} {
		_, err := run(t, time.Minute, args...)
		require.ErrorContains(t, err, want, args)
	}
}

// TestSavedPosition: the position is behind the messages that were all answered, in any order.
func TestSavedPosition(t *testing.T) {
	done := &partProgress{}
	b := &backlog{progress: done, early: map[int64]stockdata.Position{}, after: func() error { return nil }}
	at := func(n int64) stockdata.Position { return stockdata.Position{Offset: n} }
	b.stored(1, at(20))
	b.stored(2, at(30))
	require.Equal(t, partProgress{}, *done)
	b.stored(0, at(10))
	require.Equal(t, partProgress{Position: at(30), Published: 3}, *done)
	b.stored(4, at(50))
	require.Equal(t, partProgress{Position: at(30), Published: 3}, *done)
}

// TestImportStateKnowsItsTopics: a topic that has been deleted, or another cluster, is refused.
func TestImportStateKnowsItsTopics(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	s, err := loadImport(file)
	require.NoError(t, err)
	view := func(id, messages int) api.ClusterView {
		return api.ClusterView{Topics: []api.TopicView{{
			Topic: "orders", ID: ident.TopicID(id),
			Partitions: []api.PartitionView{{CommittedSequence: 10}, {CommittedSequence: ident.Sequence(messages)}},
		}}}
	}
	require.ErrorContains(t, s.begin("other", view(1, 0)), "does not list a topic that was created: other")
	require.NoError(t, s.begin("orders", view(1, 7)))
	require.NoError(t, s.save())
	s, err = loadImport(file)
	require.NoError(t, err)
	require.NoError(t, s.begin("orders", view(1, 9)))
	grown, err := s.growth("orders", view(1, 9))
	require.NoError(t, err)
	require.EqualValues(t, 2, grown)
	require.ErrorContains(t, s.begin("orders", view(2, 9)), "another cluster")
	grown, err = s.growth("orders", view(2, 9))
	require.NoError(t, err)
	require.Zero(t, grown)

	silent := view(1, 0)
	silent.Topics[0].Partitions[1].EndsUnknown = true
	_, err = s.growth("orders", silent)
	require.ErrorIs(t, err, errNotKnown)
	delete(s.Topics, "orders")
	require.ErrorIs(t, s.begin("orders", silent), errNotKnown)
	require.NotContains(t, s.Topics, "orders", "an import that began at 0 would take what was there for its own")
}

// TestNextStep: the last line of the status leads through the migration.
func TestNextStep(t *testing.T) {
	status := func(client string, exists bool, left int64, producers int) string {
		s := &migrationStatus{Channels: []migrationChannel{{Topic: "orders", Channel: "billing", Exists: exists}}}
		ch := api.ChannelStats{ChannelName: "billing", Depth: left}
		if client != "" {
			ch.Clients = []api.ClientStats{{UserAgent: client}}
		}
		n := stockNode{Topics: []api.TopicStats{{TopicName: "orders", Channels: []api.ChannelStats{ch}}}}
		for range producers {
			n.Producers = append(n.Producers, api.ClientStats{PubCounts: []api.PubCount{{Topic: "orders"}}})
		}
		s.addNode(n)
		s.sum()
		return s.Next
	}
	require.Contains(t, status("", false, 0, 0), "nsqctl migrate run")
	require.Contains(t, status("go-nsq", true, 5, 1), "nsqctl migrate run")
	require.Contains(t, status("go-nsq", true, 0, 1), "move the consumers: 1")
	require.Contains(t, status(bridgeAgent+"/1", true, 5, 2), "move the producers: 2")
	require.Contains(t, status(bridgeAgent+"/1", true, 5, 0), "wait: 5 messages")
	require.Contains(t, status("", true, 0, 0), "nothing is left")
}
