// Package devcmd has the commands of nsqctl that run processes on this machine for development and tests: dev with its
// verbs runs the brokers of a cluster on loopback, etcd runs a member of a plain etcd.
//
// It starts and stops brokers through internal/test/devcluster, and no broker by itself: one that ended stays down until
// "dev start". It uses no client protocol.
//
// # Invariants
//
//  1. A verb without a name and without --all changes no broker.
//  2. An unknown verb starts no cluster: an argument of dev is a flag of the brokers behind "--".
//  3. A wait for brokers says which of them it waits for, and why.
package devcmd
