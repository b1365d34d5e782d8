// Package skew gives brokers of tests a wall clock that the test sets while they run. The
// product carries nothing of it: Overlay is a changed copy of two files of Go's package time,
// for `go build -overlay`. A binary that was built with it adds the number in a shared file to
// each reading of the wall clock. Only tests import this package.
//
// A time namespace of the kernel does not cover the wall clock, and a preloaded library does
// not reach a Go program, which has no C library.
//
// # Limits
//
// Times that the kernel writes, those of files, are not changed. Linux only.
//
// # Invariants
//
//  1. The monotonic part of a time is not changed: timers and durations run as they do.
//  2. A jump is in force when Set returns, in all processes that have the file.
//  3. Without the variable Env a binary that was built with the overlay has the machine's clock.
package skew
