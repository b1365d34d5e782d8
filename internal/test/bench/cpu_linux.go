package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the sum of the user and system time of processes, in nanoseconds: the kernel's
// ticks in /proc/PID/stat are too coarse for a repeat of a tenth of a second. An ended process
// counts 0.
func CPU(pids []int) (total time.Duration) {
	const sched = 2 // CPUCLOCK_SCHED: the time that the scheduler has counted for all threads
	for _, pid := range pids {
		var t unix.Timespec
		if unix.ClockGettime(int32(^pid<<3|sched), &t) == nil {
			total += time.Duration(t.Nano())
		}
	}
	return total
}
