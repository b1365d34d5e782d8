//go:build !unix

package main

// fileLimit returns filesMax: the limit is unknown.
func fileLimit() uint64 { return filesMax }
