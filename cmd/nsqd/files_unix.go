//go:build unix

package main

import "syscall"

// fileLimit returns how many files the process may open; the Go runtime has raised the limit to the hard one.
func fileLimit() uint64 {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return filesMax
	}
	return uint64(files.Cur)
}
