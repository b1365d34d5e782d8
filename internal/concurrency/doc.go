// Package concurrency has small tools for goroutines: signals, sleeps that end with their context,
// groups that are waited for, counts of operations in flight, a stopwatch for stalls, writes that do not
// block. When to wait, retry or give up is the caller's choice.
//
// # Invariants
//
//  1. No goroutine and no timer outlives the Group or the context that it belongs to.
//  2. Notify never blocks. A change between the read of the state and the wait for the next change is not lost if the
//     goroutine took the channel before its read (Signal), or is the only receiver (Edge).
package concurrency
