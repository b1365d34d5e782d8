package coordinator

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMailboxKeepsOrderAndLosesNothing(t *testing.T) {
	m := newMailbox()
	const writers, each = 4, 1000
	var done sync.WaitGroup
	for w := range writers {
		done.Go(func() {
			for i := range each {
				m.post(work{ticket: uint64(w), delta: []byte{byte(i >> 8), byte(i)}})
			}
		})
	}
	next := make([]int, writers)
	var mail []work
	for n := 0; n < writers*each; {
		<-m.wake
		mail = m.take(mail)
		for _, w := range mail {
			require.Equal(t, next[w.ticket], int(w.delta[0])<<8|int(w.delta[1]))
			next[w.ticket]++
		}
		n += len(mail)
	}
	done.Wait()
}

func TestClosedMailboxGivesBackWhatItHolds(t *testing.T) {
	m := newMailbox()
	require.True(t, m.post(work{ticket: 1}))
	require.Len(t, m.close(), 1)
	require.False(t, m.post(work{ticket: 2}))
}
