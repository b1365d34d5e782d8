package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSeekChannel(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{Origin: FromEarliest})
	r.publishN(10)
	for _, x := range []struct {
		o    ChannelOptions
		left int
	}{
		{ChannelOptions{Origin: FromLatest}, 0}, {ChannelOptions{Origin: FromEarliest}, 10},
		{ChannelOptions{Origin: FromSequence, Sequence: 7}, 3}, {ChannelOptions{Origin: FromSequence, Sequence: 70}, 0},
	} {
		require.NoError(t, r.SeekChannel(t.Context(), "c", x.o))
		require.Equal(t, x.left, countsOf(r.Partition, c).depth)
		requireExact(t, r.Partition, c)
	}
}
