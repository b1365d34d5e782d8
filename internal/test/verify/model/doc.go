// Package model explores the replication protocol exhaustively: breadth first
// over every interleaving of a small cluster of the real replica.Machine, with
// models of only what surrounds it (disks, links, the metadata store).
//
// It is not the simulator (internal/test/verify/sim): it has no seed and no probability. A
// configuration bounds how often each kind of fault may happen; within those
// bounds nothing is left out, and the first violation found has a shortest
// trace.
//
// # How
//
// A state of the cluster is a tuple of numbers (world.go): the state of each
// broker, the messages on each link, the metadata store, and what history must
// remember to judge. Each part is kept once, under its canonical form, so a Step
// of the real machine is computed once per (broker state, event) however many
// cluster states share it; a cluster state is some 150 bytes without pointers.
// Canonical forms drop tokens, turn times into ages, and merge ages beyond every
// deadline (replica.Machine.Canonical). Visited states are known by 128 bits.
//
// Time is an action: a Tick of one broker passes its short deadlines (answer,
// in-sync, write), two to three pass the grace time. Suspicion of a peer needs
// no time at all. Elections do not wait, so every race of candidates is
// there; probes, which only order candidates, are not sent.
//
// # What is checked, in every state
//
//	P1 every member of the in-sync set whose store is its own holds durably all
//	   that was ever committed, and all channel changes ever confirmed: every
//	   replica that may lead next has everything
//	P2 the committed log, once shown by a broker, has the same bytes on all brokers,
//	   and consists of whole batches
//	P3 a put is answered as committed only if it is, and with its place
//	P4 a put that was only ever refused or rolled back is not committed
//	P5 a request is committed once
//	P6 a leader that serves, in an epoch not older than the last confirmation, has every
//	   channel change ever confirmed
//	P7 one process per epoch commits
//	P8 the in-sync set never has fewer members than its minimum
//	P9 the committed end of a process never moves back
//	P10 no attempt of a put is answered twice
//	P11 a leader that leads the next epoch, too, delivers without a break
//
// The machine's own assertions and alarms count as violations too, but not those
// of a mutant (internal/test/verify/mutants): only P1 to P11 may catch it.
package model
