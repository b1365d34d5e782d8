// Package world simulates whole brokers from one seed: three or five of them in one process, in virtual time, with the daemon's own
// code from the front ends down to the files: TCP commands and HTTP routes fed with bytes, gateway, dispatch, engine, replica, nsqd,
// store, journal, commit log, catalog, session, transactions, controller, maintenance, dedupe windows, HTTP consumers and receipts.
//
// In place of the machine there are a network (net.go: latencies, cuts in one or both directions, machines that fall silent, resets),
// disks in memory (disk.go: power cuts with torn and lost writes, hangs, slow syncs, failed writes, full disks) and the metadata's model
// (meta.go: latency, lost answers, sessions that expire, compaction). Files, windows and checkpoints are small, so that they turn over in
// every run.
//
// A seed draws the shape of the cluster, its topics, a plan of faults and what each client does. Clients publish by PUB, MPUB, DPUB,
// PUB_EXT, MPUB_EXT, /pub, /mpub and /v1/topic/append, alone and pipelined, with and without ids, and repeat what was answered; they
// consume over TCP and HTTP, finish, requeue with delays, touch, let messages time out, die, and use receipts late and at any broker.
// Topics have filters, policies with dead letters, a time to live, and windows that change. After the faults everything is healed, and every
// acknowledged message has to arrive within two minutes; then an operator deletes a topic, undeletes it and makes it anew (operator.go).
// In some seeds the brokers enforce rights: users are created, get rights and new tokens, lose them and are deleted, while their clients
// publish, consume and use receipts at every broker with tokens that are valid or were (users.go). A user that does nothing marks what each
// broker has learned, so that the judge needs no margin.
// In some seeds one disk is full for long and nothing else happens: every put that reaches a broker has to be accepted. Package
// internal/test/verify/judge decides whether what the clients saw is right.
//
// Package host runs a seed so that it repeats its trace; Result.Hash is the sum of all that clients saw, and when. A seed that fails is
// run again with fewer faults until each of the rest is needed (host.Shrink).
//
// It does not simulate sockets, TLS, the embedded etcd, certificates and auth services, the command line, nsqctl, the Go client, wall clocks that jump, and
// brokers that stand still while their threads do not (a pause stops a machine's network, disk and metadata). Only one goroutine runs at a
// time: data races are for the race detector.
package world
