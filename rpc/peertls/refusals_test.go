package peertls_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// TestAFloodDoesNotFillTheLog: a flood writes at most five lines a second, whether its reasons
// are equal or not, and the number of the others.
func TestAFloodDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, reason := range map[string]func(i int) string{
			"equal": func(int) string { return "no broker" }, "different": func(i int) string { return fmt.Sprint(i) },
		} {
			log, logged := logtest.NewNullLogger()
			r := peertls.NewRefusals(log)
			for i := range 100_000 {
				r.Warn(reason(i), logrus.Fields{"i": i}, "connection refused")
			}
			lines := len(logged.AllEntries())
			require.Equal(t, map[string]int{"equal": 1, "different": 5}[name], lines, name)
			r.Close()
			require.Equal(t, 100_000-lines, logged.LastEntry().Data["omitted"], name)
			r.Warn("another", nil, "connection refused")
			require.Len(t, logged.AllEntries(), lines+1, "nothing after Close")
		}
	})
}
