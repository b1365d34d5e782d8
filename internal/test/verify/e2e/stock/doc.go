// Package stock runs stock NSQ alongside Lockstep: its tools, its data directories, a migration, the tests of go-nsq and nsqjs. The rules of
// its tests are those of package e2e.
package stock
