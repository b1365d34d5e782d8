// Package health assesses a cluster: its faults, where they are, how severe they are, and the operator's next step. The console,
// nsqctl and scripts use the same assessment.
//
// It is pure: it reads one broker's view of the cluster (api.ClusterView) and the brokers' reports on themselves (Own). Faults
// that these do not contain are unknown. For example, an unreachable broker counts as dead only when the cluster has revoked its
// registration.
//
// Thresholds and next steps that an alarm shares with a Prometheus alert come from contrib/prometheus/alerts.yml (alerts.go).
//
// Invariants:
//
//  1. A cluster is healthy only if no fault is reported.
//  2. The state of a report is the state of its worst alarm.
//  3. A value that is missing in the view never counts as good.
package health
