//go:build unix

package main

import "syscall"

// fileLimit is how many files the process may have open; the Go runtime has
// raised it to the hard limit.
func fileLimit() uint64 {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return filesMax
	}
	return uint64(files.Cur)
}
