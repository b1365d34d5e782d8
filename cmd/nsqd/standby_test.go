package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

// TestReasonsInTheLog: each change is logged at once; a reason that remains, or returns, every
// 30 s.
func TestReasonsInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := logrus.New()
		log.SetOutput(&out)
		s := newStandby(log, nil)
		lines := func(text string) int { return strings.Count(out.String(), "NOT READY: "+text) }
		s.sayIfLong("early")
		require.Equal(t, "early", s.why())
		require.Zero(t, lines("early"), "every start waits for a moment")
		time.Sleep(usualWait)
		s.sayIfLong("early")
		require.Equal(t, 1, lines("early"))
		for range 10 { // one second each
			s.say("a")
			s.say("b")
			time.Sleep(time.Second)
		}
		require.Equal(t, "b", s.why())
		require.Equal(t, []int{1, 1}, []int{lines("a"), lines("b")})
		time.Sleep(repeatEvery)
		s.say("a")
		require.Equal(t, []int{2, 1}, []int{lines("a"), lines("b")})
		s.step("c")
		require.Equal(t, "c", s.why())
		require.Zero(t, lines("c"), "a step is no reason to wait")
		for i := range 10 * maxReasons {
			s.say(fmt.Sprint("other ", i))
		}
		require.LessOrEqual(t, len(s.mu.logged), maxReasons)
	})
}
