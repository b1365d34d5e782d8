package nsqd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A new leader may hold a finish that not all in-sync replicas have. Until they
// have what it begins with, an ordered channel stays shut: a successor without
// that finish would deliver the message again behind the next one.
func TestOrderedChannelWaitsForWhatItInherits(t *testing.T) {
	r := newRig(Options{})
	r.channel(t, "plain", ChannelOptions{})
	c := r.channel(t, "strict", ChannelOptions{Ordered: true})
	s := subscribe(t, c)
	r.publishN(2)
	r.rep.hold = true // the finish is in the state and nowhere else
	require.NoError(t, c.Finish(s, c.Pull(s, 1, nil)[0].Message.Seq, 1))

	n := &rig{log: r.log, rep: &replicas{hold: true}, clock: r.clock}
	n.Partition = NewPartition("orders", testID, n.log, n.rep, r.o)
	n.Replace(r.Snapshot())
	n.Lead(2)
	plain, _ := n.Channel("plain")
	require.Len(t, plain.Pull(subscribe(t, plain), 1, nil), 1)
	strict, _ := n.Channel("strict")
	s = subscribe(t, strict)
	<-s.Wake
	require.Empty(t, strict.Pull(s, 1, nil))
	n.rep.answer(n.Partition, true)
	<-s.Wake
	require.Len(t, strict.Pull(s, 1, nil), 1)
}
