// Package mutation switches one safety-critical line of the real code off, in
// binaries and tests built with `-tags mutation`, so that it can be shown that
// the tests notice (make sim-mutations, docs/robustness-mutations.md).
//
// Without the tag Chosen is the empty constant and every question is decided by
// the compiler: a daemon has neither the switch nor its cost. With the tag the
// environment variable LOCKSTEP_MUTATION names the line.
//
// It does not know the rules of the replication protocol: those are names of
// coordinator/replica, which takes them by its options; here are only the lines
// outside of it.
package mutation

// The lines outside of coordinator/replica.
const (
	// JournalSync is the fdatasync of a group of the journal.
	JournalSync = "journal-sync"
	// PayloadCRC is the comparison of a batch's payload with its checksum.
	PayloadCRC = "payload-crc"
	// TombstoneRead is the condition that only a tombstone that was read lets the
	// files of a partition go that has no key.
	TombstoneRead = "tombstone-read"
)

// Off reports whether the named line is switched off.
func Off(line string) bool { return Chosen() == line }
