// Package concurrency has the small tools of goroutines: signals, sleeps that end with their context, groups
// that are waited for, counts of operations in flight, a stopwatch for stalls, writes that do not block.
//
// It decides nothing: when to wait, retry or give up is the caller's choice.
//
// # Invariants
//
//  1. No goroutine and no timer outlives the Group or the context that it belongs to.
//  2. Notify never blocks, and no notification is lost.
package concurrency
