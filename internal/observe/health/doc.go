// Package health judges a cluster. It reports the faults, their places, their severity, and what an operator
// does about them. The page, nsqctl and scripts use the same judgement.
//
// It is pure: it reads the view that one broker gives of its cluster (api.ClusterView) and the
// brokers' reports on themselves (Own), and asks nobody, so it has only what they contain. For
// example, an unreachable broker counts as dead only when the cluster has revoked its registration.
//
// Invariants:
//
//  1. A cluster is well only if no alarm is raised.
//  2. The state of a report is that of its worst alarm.
//  3. A value that the view does not have is never taken for a good one.
package health
