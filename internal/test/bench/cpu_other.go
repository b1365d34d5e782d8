//go:build !linux

package bench

import "time"

// CPU returns 0: the processor time of other processes is read on Linux only.
func CPU([]int) time.Duration { return 0 }
