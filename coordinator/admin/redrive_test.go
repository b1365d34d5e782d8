package admin

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// sharedLetters is a subscription to a dead-letter topic that has any number of messages of other channels.
type sharedLetters struct{ api.Subscription }

func (sharedLetters) SetReady(int) {}

func (sharedLetters) Pull(credit int, dst []api.Delivery) []api.Delivery {
	for range credit {
		dst = append(dst, api.Delivery{Message: queue.Message{Header: []byte(`{"topic":"orders","channel":"other"}`)}})
	}
	return dst
}

// silent is a gateway to which nothing is published.
type silent struct{ gateway }

func (silent) PublishAll(context.Context, string, []int, []queue.Message) []error { return nil }

// TestRedriveBehindManyOfOtherChannels: the answer is not that there are none.
func TestRedriveBehindManyOfOtherChannels(t *testing.T) {
	r := redrive{redriver: &redriver{gateway: silent{}}, sub: sharedLetters{}, topic: "orders", channel: "billing"}
	moved, err := r.run(t.Context(), 100)
	require.Zero(t, moved)
	require.ErrorIs(t, err, outcome.ErrUnavailable)
	require.ErrorContains(t, err, "repeat the request")
}

// noted is a gateway that notes the identities of messages, and a subscription that finishes everything.
type noted struct {
	gateway
	api.Subscription
	identities []queue.Identity
}

func (n *noted) PublishAll(_ context.Context, _ string, _ []int, messages []queue.Message) []error {
	for _, m := range messages {
		n.identities = append(n.identities, m.Identity)
	}
	return make([]error, len(messages))
}

func (*noted) Finish(api.MessageID) error { return nil }

// TestARedriveOfAReusedSequenceIsNoRepeat: after an unclean recovery a dead letter has the sequence of a lost one, which was
// moved back before. It is another message.
func TestARedriveOfAReusedSequenceIsNoRepeat(t *testing.T) {
	n := &noted{}
	r := redrive{redriver: &redriver{records: &records{catalog: catalog.New(metadata.Keys{}, nil)}, gateway: n}, sub: n, topic: "orders", channel: "billing"}
	for _, at := range []int64{5, 5, 6} {
		moved, err := r.move(t.Context(), []api.Delivery{{Message: queue.Message{Seq: 3, Time: at, Header: []byte(`{"##original_topic":"orders","##original_channel":"billing"}`)}}})
		require.NoError(t, err)
		require.Equal(t, 1, moved)
	}
	require.Len(t, n.identities, 3)
	require.Equal(t, n.identities[0], n.identities[1], "a repeat")
	require.NotEqual(t, n.identities[1], n.identities[2])
}
