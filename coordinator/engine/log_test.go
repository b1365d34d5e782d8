package engine

import (
	"fmt"
	"testing"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/stretchr/testify/require"
)

// TestMessagesOfLargeBatchesAreDetached: a message kept the whole batch in memory that it
// was put with. Many that are redelivered, each read by itself, took gigabytes.
func TestMessagesOfLargeBatchesAreDetached(t *testing.T) {
	a := newAlone(t)
	d, carry := queue.NewDraft(500_000), queue.NewRelocation()
	for i := range 1000 {
		m := queue.Message{Header: []byte(`{"n":1}`), Body: []byte(fmt.Sprintf("%500d", i)), Seq: ident.Sequence(i), Time: 1}
		require.NoError(t, d.AddMessage(m))
		require.NoError(t, carry.Add(m))
	}
	a.write(d.Draft(ident.RequestID{}))
	at := a.write(carry.Draft())
	read, err := a.p.Read(600, 2, nil)
	require.NoError(t, err)
	m, ok, err := a.p.ReadRelocated(at, 602)
	require.NoError(t, err)
	require.True(t, ok)
	for i, m := range append(read, m) {
		require.Equal(t, fmt.Sprintf(`{"n":1}%500d`, 600+i), string(m.Header)+string(m.Body))
		require.Less(t, cap(m.Header)+cap(m.Body), 1000)
	}
	all, err := a.p.Read(0, 1000, nil)
	require.NoError(t, err)
	require.Len(t, all, 1000)
	require.Equal(t, fmt.Sprintf("%500d", 999), string(all[999].Body))
}
