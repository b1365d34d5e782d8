// Package smoke runs real brokers through every theme of internal/test/verify/e2e once. It is the gate's
// test of processes: one cluster of three, which the parts of TestSmoke use one after the other,
// and one broker alone, the target of an import and of a mirror.
//
// It judges what clients see, and no time: the long forms and the promised times stay in
// internal/test/verify/e2e.
//
// # Invariants
//
//  1. An operation that fails is repeated where the contract allows it, so a message may be there
//     twice after a doubt. A message that is acknowledged is delivered, and none is delivered that
//     was never published.
//  2. The only limit of time is wait.Limit, after which an operation counts as hung.
package smoke
