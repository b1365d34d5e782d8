package migration

import (
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/publisher"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/nsqclient"
	"github.com/lockstepmq/lockstep/internal/test/testkit/brokertest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// delegate counts the answers of messages.
type delegate struct{ finished, requeued chan string }

func (d delegate) OnFinish(m *nsq.Message)                           { d.finished <- string(m.Body) }
func (d delegate) OnRequeue(m *nsq.Message, _ time.Duration, _ bool) { d.requeued <- string(m.Body) }
func (d delegate) OnTouch(*nsq.Message)                              {}

// message is a delivery of the stock side.
func (d delegate) message(nsqd, body string) *nsq.Message {
	m := nsq.NewMessage(nsq.MessageID{'1'}, []byte(body))
	m.NSQDAddress, m.Delegate = nsqd, d
	return m
}

func newDelegate() delegate {
	return delegate{finished: make(chan string, 10), requeued: make(chan string, 10)}
}

func start(t *testing.T, address string) *bridge {
	t.Helper()
	consumer := nsq.NewConfig()
	consumer.MaxInFlight = 10
	b, err := startBridge(bridgeOptions{Topic: "orders", Channel: "billing", Consumer: consumer, Publisher: publisher.Options{
		Addresses: []string{address}, Dialer: nsqclient.Dialer{Timeout: wait.Limit}, Batch: 1, Window: 10,
		Retry: publisher.Forever, Timeout: wait.Limit, Report: func(string) {}, Progress: func(int) {},
	}})
	require.NoError(t, err)
	return b
}

// TestFinishesAfterTheOK: not before; and a message that comes again before it is published once.
func TestFinishesAfterTheOK(t *testing.T) {
	address, cluster := brokertest.Start(t, tcp.DefaultOptions())
	cluster.Hold()
	b, d := start(t, address), newDelegate()
	require.NoError(t, b.HandleMessage(d.message("nsqd1", "one")))
	require.NoError(t, b.HandleMessage(d.message("nsqd1", "one, again")))
	require.NoError(t, b.HandleMessage(d.message("nsqd2", "another with the same id")))
	stored := func() (n int) { // the broker joins puts
		for _, count := range cluster.Puts() {
			n += count
		}
		return n
	}
	wait.Until(t, func() bool { return stored() == 2 }, "two messages are published")
	require.Empty(t, d.finished)
	cluster.Release()
	got := []string{<-d.finished, <-d.finished, <-d.finished}
	require.ElementsMatch(t, []string{"one, again", "one", "another with the same id"}, got)
	moved, repeated := b.counts()
	require.EqualValues(t, []int64{2, 1}, []int64{moved, repeated})
	require.Equal(t, 2, stored())
	require.Zero(t, b.stop())
	require.Empty(t, d.requeued)
}

// TestGivesBack: messages whose puts are not answered go back to the stock nsqd when the bridge stops.
func TestGivesBack(t *testing.T) {
	address, cluster := brokertest.Start(t, tcp.DefaultOptions())
	cluster.FailPuts(outcome.ErrNotEnough)
	b, d := start(t, address), newDelegate()
	require.NoError(t, b.HandleMessage(d.message("nsqd1", "one")))
	require.NoError(t, b.HandleMessage(d.message("nsqd2", "two")))
	require.Equal(t, 2, b.stop())
	require.ElementsMatch(t, []string{"one", "two"}, []string{<-d.requeued, <-d.requeued})
	require.Empty(t, d.finished)
	moved, repeated := b.counts()
	require.Zero(t, moved+repeated)
}

// TestEndsWithARefusalForGood: a message that every broker refuses ends the bridge, and stays at the nsqd.
func TestEndsWithARefusalForGood(t *testing.T) {
	small := tcp.DefaultOptions()
	small.MaxMsgSize = 5
	address, _ := brokertest.Start(t, small)
	b, d := start(t, address), newDelegate()
	require.NoError(t, b.HandleMessage(d.message("nsqd1", "too long for it")))
	<-b.ended
	require.ErrorContains(t, b.err, "E_BAD_MESSAGE")
	require.NoError(t, b.HandleMessage(d.message("nsqd2", "later")))
	require.Equal(t, "later", <-d.requeued)
	require.Equal(t, 1, b.stop())
	require.Equal(t, "too long for it", <-d.requeued)
	require.Empty(t, d.finished)
}
