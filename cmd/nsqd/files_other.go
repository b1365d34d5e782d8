//go:build !unix

package main

// fileLimit: none is known.
func fileLimit() uint64 { return filesMax }
