// Package migration has the commands of nsqctl that move messages of stock NSQ to Lockstep: migrate, which bridges the
// channels of a running cluster, and import-nsqd, which reads the data path of a stopped nsqd.
//
// It does not read the files of an nsqd (cmd/nsqctl/internal/stockdata), nor the topology of its cluster
// (cmd/nsqctl/internal/stockcluster), and moves no message itself (cmd/nsqctl/internal/bridge,
// cmd/nsqctl/internal/publisher). It changes nothing in the data path but its own state file.
//
// # Invariants
//
//  1. The saved position of an import is behind messages that were all answered OK, whatever the order of the
//     answers.
//  2. An import continues only with the topics that it created, and only at the same cluster.
//  3. The credentials of one cluster are not sent to the other.
//
// # Goroutines
//
// The command's goroutine owns an import and a migration. An import publishes in it, and reads ahead in one more. The
// bridges have their own goroutines, which report through a cli.Reporter.
package migration
