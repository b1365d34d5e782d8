package engine

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

func lines(level logrus.Level) (*logrus.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	log := logrus.New()
	log.SetOutput(&b)
	log.SetLevel(level)
	log.SetFormatter(&logrus.TextFormatter{DisableTimestamp: true, DisableColors: true})
	return log, &b
}

func isr(nodes ...ident.Node) (all []ident.Member) {
	for _, n := range nodes {
		all = append(all, ident.Member{Node: n, Store: 1})
	}
	return all
}

// TestAFailoverIsAFewLines: the death of a broker that led 100 of 300 partitions is one line for each
// kind of change, with counts.
func TestAFailoverIsAFewLines(t *testing.T) {
	c := &changes{}
	for i := range 300 {
		p := &Partition{topic: "orders", id: ident.Partition{Number: uint16(i)}}
		switch i % 3 {
		case 0: // led by the dead broker, now here
			c.note(p, &replica.View{Role: replica.Electing, Leader: "n1", Epoch: 2}, &replica.View{Role: replica.Leader, Leader: "n1", Epoch: 2})
		case 1: // led by the dead broker, now by n2
			c.note(p, &replica.View{Role: replica.Follower, Leader: "n3", Epoch: 1}, &replica.View{Role: replica.Follower, Leader: "n2", Epoch: 2})
		case 2: // led here all the time
			c.note(p, &replica.View{Role: replica.Leader, Epoch: 1, ISR: isr("n1", "n2", "n3")}, &replica.View{Role: replica.Leader, Epoch: 1, ISR: isr("n1", "n2")})
		}
	}
	log, out := lines(logrus.InfoLevel)
	c.log(log, c.last.Add(changesQuiet/2))
	require.Empty(t, out.String(), "more may come")
	c.log(log, c.last.Add(changesQuiet))
	text := out.String()
	require.Equal(t, 3, strings.Count(text, "\n"), text)
	require.Equal(t, 3, strings.Count(text, "count=100"), text)
	require.Contains(t, text, `level=info msg="gained leadership of partitions" count=100 first="orders/0 epoch 2, orders/3 epoch 2, orders/6 epoch 2, orders/9 epoch 2, orders/12 epoch 2, and 95 more"`)
	require.Contains(t, text, `msg="following a new leader"`)
	require.Contains(t, text, "node=n2")
	require.Contains(t, text, `level=warning msg="broker removed from in-sync set"`)
	require.Contains(t, text, "node=n3")
	out.Reset()
	c.log(log, c.last.Add(time.Hour))
	require.Empty(t, out.String(), "once")
}

// TestChangesThatGoOnAreLogged: they are not put off for as long as more come.
func TestChangesThatGoOnAreLogged(t *testing.T) {
	c := &changes{}
	log, out := lines(logrus.InfoLevel)
	p := &Partition{topic: "t"}
	c.note(p, &replica.View{Role: replica.Leader, ISR: isr("n1")}, &replica.View{Role: replica.Leader, ISR: isr("n1", "n2")})
	c.note(p, &replica.View{Role: replica.Leader}, &replica.View{Role: replica.Follower})
	c.last = c.first.Add(changesMost) // another one just came
	c.log(log, c.first.Add(changesMost))
	require.Contains(t, out.String(), "broker added to in-sync set")
	require.Contains(t, out.String(), "lost leadership of partitions")
}

// TestSlowPutsAreLogged: with the stage that took most of the time, and at most one line a second.
func TestSlowPutsAreLogged(t *testing.T) {
	log, out := lines(logrus.InfoLevel)
	l := newLoop(&Options{Slow: time.Second, Log: log}, nil, newPace())
	p := &Partition{topic: "orders", id: ident.Partition{Number: 3}}
	now := time.Now()
	put := func(queued, replicated, sync time.Duration) {
		l.slow.synced = sync
		l.noteSlow(p, ticket{at: now.Add(-queued - replicated), proposed: now.Add(-replicated)}, now)
	}
	put(500*time.Millisecond, 400*time.Millisecond, 0)
	require.Empty(t, out.String(), "below the limit")
	for _, row := range []struct {
		queued, replicated, sync time.Duration
		stage                    string
	}{
		{time.Second, 100 * time.Millisecond, 0, "queue"},
		{0, 2 * time.Second, 1900 * time.Millisecond, "sync"},
		{0, 2 * time.Second, time.Millisecond, "replicate"},
	} {
		out.Reset()
		now = now.Add(slowEvery)
		put(row.queued, row.replicated, row.sync)
		put(row.queued, row.replicated, row.sync)
		require.Equal(t, 1, strings.Count(out.String(), "\n"), "%s: %s", row.stage, out)
		require.Contains(t, out.String(), "stage="+row.stage)
		require.Contains(t, out.String(), "partition=3")
	}
	require.Contains(t, out.String(), "skipped=1")
	l.o.Slow = 0
	out.Reset()
	now = now.Add(time.Hour)
	put(0, time.Hour, 0)
	require.Empty(t, out.String(), "switched off")
}
