package gateway

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// byContent is the topic "orders" that recognises content.
func (w *world) byContent(leaders ...ident.Node) metadata.TopicState {
	top := w.topic("orders", leaders...)
	top.Options.Dedupe = option.DedupeContent
	w.mu.Lock()
	defer w.mu.Unlock()
	w.topics["orders"] = top
	return top
}

// apart is the number of the partition of a body without a key.
func apart(top metadata.TopicState, body string) int {
	x := queue.IdentityOfContent(nil, nil, []byte(body))
	return partitionOf(x[:], top.Partitions)
}

// together publishes bodies as one put.
func (b *broker) together(a api.Answerer, key []byte, bodies ...string) {
	d := queue.NewDraft(0)
	for _, body := range bodies {
		_ = d.AddMessage(queue.Message{Body: []byte(body)})
	}
	b.gw.Publish("orders", api.AnyPartition, key, d.Draft(ident.RequestID{}), a)
}

// TestMessagesGoToTheirPartitions: each message of a put is where it is when it is published alone, in the
// order of the put; with a key all are in the partition of the key. One answer comes, with the first message.
func TestMessagesGoToTheirPartitions(t *testing.T) {
	for _, at := range []ident.Node{"n1", "n2"} {
		inBubble(t, func(t *testing.T, w *world) {
			top := w.byContent("n1", "n2", "n1", "n3")
			bodies := numbers(50)
			a := &answers{}
			w.brokers[at].together(a, nil, bodies...)
			synctest.Wait()
			requireOK(t, a, 1)
			require.Zero(t, a.all()[0].Sequence)
			for n := range top.Partitions {
				want := slices.DeleteFunc(slices.Clone(bodies), func(body string) bool { return apart(top, body) != n })
				require.Equal(t, want, w.bodies(top.Partition(n)))
			}
			w.brokers[at].together(a, []byte("k"), "x", "y", "z")
			synctest.Wait()
			requireOK(t, a, 2)
			keyed := w.bodies(top.Partition(partitionOf([]byte("k"), 4)))
			require.Equal(t, []string{"x", "y", "z"}, keyed[len(keyed)-3:])
			require.Zero(t, w.brokers[at].gw.budget.mu.used)
		})
	}
}

// TestPutThatIsStoredInPart: if one partition refuses its messages, the whole is in doubt, and each message has
// the fate of its own. If none is stored the whole is not stored.
func TestPutThatIsStoredInPart(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, others outcome.Outcome // of the partition of the first message, and of the others; 0: stored
		whole         error
	}{
		{"one is full", outcome.TopicFull, 0, outcome.ErrInDoubt},
		{"the others are full", 0, outcome.TopicFull, outcome.ErrInDoubt},
		{"all are full", outcome.TopicFull, outcome.TopicFull, outcome.ErrTopicFull},
		{"full and in doubt", outcome.TopicFull, outcome.BelowWindow, outcome.ErrBelowWindow},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				top := w.byContent("n1", "n1", "n1")
				bodies := numbers(30)
				w.brokers["n1"].judge = func(_ int, d queue.Draft) (outcome.Outcome, bool) {
					b := d.Clone()
					sealed := b.Seal(ident.Position{}, 1, 0, 0)
					if apart(top, string(sealed.Messages(0, 1, nil)[0].Body)) == apart(top, bodies[0]) {
						return c.first, true
					}
					return c.others, true
				}
				a := &answers{}
				w.brokers["n1"].together(a, nil, bodies...)
				time.Sleep(20 * time.Second)
				require.Len(t, a.all(), 1)
				err := a.all()[0].Err
				require.ErrorIs(t, err, c.whole)
				require.Equal(t, c.whole == outcome.ErrInDoubt, errors.Is(err, outcome.ErrInDoubt))
				var each *api.EachError
				require.ErrorAs(t, err, &each)
				for n, body := range bodies {
					want := c.others.Row().Err
					if apart(top, body) == apart(top, bodies[0]) {
						want = c.first.Row().Err
					}
					require.Equal(t, want, each.Each[n], fmt.Sprint(n))
				}
				require.Zero(t, w.brokers["n1"].gw.budget.mu.used)
			})
		})
	}
}

// TestPutsOfSeveralAreBounded: a put of several partitions is refused as a whole if there is no room.
func TestPutsOfSeveralAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.byContent("n1", "n1")
		for n := range top.Partitions {
			w.lead(top.Partition(n), "")
		}
		w.brokers["n1"].gw.budget.limit = 2000
		a := &answers{}
		for range 3 {
			w.brokers["n1"].together(a, nil, numbers(50)...)
		}
		require.Len(t, a.all(), 1)
		require.Equal(t, outcome.ErrBusy, a.all()[0].Err)
		require.NoError(t, w.brokers["n1"].gw.Close())
		w.brokers["n1"].together(a, nil, numbers(50)...)
		require.Len(t, a.all(), 4)
		for _, r := range a.all()[1:] {
			require.ErrorIs(t, r.Err, outcome.ErrExiting)
		}
	})
}

// TestOneIDOfSeveralStays: the messages of an /mpub with one id are parts of it, and cannot come alone: it stays
// in one partition.
func TestOneIDOfSeveralStays(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.byContent("n1", "n1", "n1", "n1")
		d, x := queue.NewDraft(0), queue.IdentityOf([]byte("put 1"))
		for i, body := range numbers(20) {
			require.NoError(t, d.AddMessage(queue.Message{Body: []byte(body), Identity: x.Part(i)}))
		}
		a := &answers{}
		w.brokers["n1"].gw.Publish("orders", api.AnyPartition, nil, d.Draft(ident.RequestID{}), a)
		synctest.Wait()
		requireOK(t, a, 1)
		first := x.Part(0)
		require.Equal(t, numbers(20), w.bodies(top.Partition(partitionOf(first[:], 4))))
	})
}
