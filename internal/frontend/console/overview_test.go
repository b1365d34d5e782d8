package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

// TestWhatABrokerReportsExplains: the report of a broker about its own fault is the cause of the alarm
// of that broker, or of that partition, as long as it is new.
func TestWhatABrokerReportsExplains(t *testing.T) {
	now := time.Now()
	under := health.Report{Alarms: []health.Alarm{{Code: health.UnderReplicated, Where: []string{"orders/0"}}}}
	dead := health.Report{Alarms: []health.Alarm{{Code: health.BrokerDead, Where: []string{"n3"}}}}
	hangs := health.Report{Alarms: []health.Alarm{{Code: health.BrokerHangs, Where: []string{"n3"}}}}
	event := func(code, where string, age time.Duration) []Event {
		return []Event{{Text: "an election"}, {Code: code, Where: []string{where}, Text: "because", TimeMS: now.Add(-age).UnixMilli()}}
	}
	for name, c := range map[string]struct {
		report  health.Report
		changes []Event
		cause   string
	}{
		"a replica that refuses":           {under, event(events.ReplicaAlarm, "orders/0", time.Minute), "because"},
		"a broker whose store hangs":       {hangs, event(events.StoreFailed, "n3", time.Second), "because"},
		"long ago":                         {under, event(events.ReplicaAlarm, "orders/0", reportedFor+time.Second), ""},
		"another partition":                {under, event(events.ReplicaAlarm, "orders/1", 0), ""},
		"another broker":                   {hangs, event(events.StoreFailed, "n2", 0), ""},
		"a broker that hung, and died":     {dead, event(events.StoreFailed, "n3", 0), ""},
		"a report of another kind":         {dead, event(events.ReplicaAlarm, "n3", 0), ""},
		"an alarm that package health has": {under, event(health.UnderReplicated, "orders/0", 0), ""},
		"no report":                        {dead, nil, ""},
	} {
		require.Equal(t, c.cause, reported(c.changes, c.report, now), name)
	}
}
