// Package benchcmd has the command of nsqctl that measures brokers: it takes the brokers of the command line, of a dev
// cluster, or starts a new cluster (with users, or with TLS), and measures them in turns.
//
// The workloads, the turns and the report are those of internal/test/bench. It judges no figure.
//
// # Invariants
//
//  1. A measurement uses exactly the brokers that were given or started: none that another one names.
//  2. A cluster that the command starts ends with it, and its directory is removed.
//  3. Rows that are finished are printed, also if a later workload fails.
package benchcmd
