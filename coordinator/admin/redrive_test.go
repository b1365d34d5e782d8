package admin

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// sharedLetters is a subscription to a dead-letter topic that has any number of
// messages of other channels.
type sharedLetters struct{ edge.Subscription }

func (sharedLetters) SetReady(int) {}

func (sharedLetters) Pull(credit int, dst []edge.Delivery) []edge.Delivery {
	for range credit {
		dst = append(dst, edge.Delivery{Message: queue.Message{Header: []byte(`{"topic":"orders","channel":"other"}`)}})
	}
	return dst
}

// silent is a gateway to which nothing is published.
type silent struct{ Gateway }

func (silent) PublishAll(context.Context, string, []int, []queue.Message) []error { return nil }

// TestRedriveBehindManyOfOtherChannels: the answer is not that there are none.
func TestRedriveBehindManyOfOtherChannels(t *testing.T) {
	r := redrive{Redriver: &Redriver{gateway: silent{}}, sub: sharedLetters{}, topic: "orders", channel: "billing"}
	moved, err := r.run(t.Context(), 100)
	require.Zero(t, moved)
	require.ErrorIs(t, err, edge.ErrUnavailable)
	require.ErrorContains(t, err, "ask again")
}
