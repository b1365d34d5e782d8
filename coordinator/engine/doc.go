// Package engine runs the replication machines of one broker's partitions (coordinator/replica) with a real disk, real
// sockets and real time. A put enters at Propose, a message of another broker at Receive.
//
// It has no protocol rule of its own: the machine decides what is committed, elected or truncated. It does not read the
// metadata, open or place replicas, or judge which brokers are alive; it is notified (Options, Post).
//
// docs/TOUR.md follows a put, and a change of the channels (Submit), through the passes of a loop.
//
// # The parts
//
//	Engine      owns everything below
//	loop        a core loop: event queue, run lock, passes; half as many as processors
//	Partition   one replica: machine, store, channels
//	window      adaptive batching of one partition
//	deadlines   when a partition's channels have something to do; near deadlines
//	fence       how long the channels led here may serve
//	pace        how fast channels that are far behind may read
//	reader      reads of the log for followers that catch up
//	flusher     writes to the page cache, where nothing is synced
//
// # Invariants
//
//  1. A machine is stepped by the holder of its loop's run lock alone. A pass does no I/O: without syncs, the goroutine
//     that ran the pass copies its writes to the page cache when it holds no lock (flush.go).
//  2. Effects are carried out in their order: writes to the journal before sends, reads,
//     compare-and-swaps and completions of the same pass.
//  3. A Completer is called exactly once, also at Stop.
//  4. The view is published before the answers that depend on it.
//  5. Only role Leader serves. Channels are stopped before anything else when it ends.
//  6. No event is left in a queue that no goroutine will process: the holder of the run
//     lock checks the queue again after releasing it.
//
// # Goroutines
//
//	loop    half of GOMAXPROCS, at most 4; started by New, end at Stop; own their machines
//	        while they hold the run lock
//	reader  2; started by New, end at Stop; answers go to the loops
//
// RunClock and RunNearTimer run in goroutines of the caller, until their context ends.
package engine
