package api

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

const topic ident.TopicID = 0x123456789

func TestMessageIDs(t *testing.T) {
	id := MessageIDOf(ident.Partition{Topic: topic, Number: 3}, 12345)
	require.Equal(t, "78900c0000003039", string(id[:]))
	place, ok := ParseMessageID(id)
	require.True(t, ok)
	require.Equal(t, messagePlace{Nonce: NonceOf(topic), Partition: 3, Sequence: 12345}, place)
	_, ok = ParseMessageID(MessageID([]byte("78900C0000003039")))
	require.False(t, ok)
}

// TestTheEndsOfTheRange: the least and the greatest place come back.
func TestTheEndsOfTheRange(t *testing.T) {
	for _, p := range []ident.Partition{{}, {Topic: 1<<nonceBits - 1, Number: MaxPartitions - 1}} {
		for _, seq := range []ident.Sequence{0, ident.MaxSequence - 1} {
			place, ok := ParseMessageID(MessageIDOf(p, seq))
			require.True(t, ok)
			require.Equal(t, messagePlace{Nonce: NonceOf(p.Topic), Partition: p.Number, Sequence: seq}, place)
		}
	}
}
