// Package msgid is the form of message ids. An id is 64 bits in 16 hexadecimal digits:
//
//	bits 63–52 topic nonce: the low 12 bits of the topic id
//	bits 51–42 partition
//	bits 41–0  sequence
//
// It does not decide whether a message exists: that is known at the partition alone.
//
// Invariants: the id is the same on every replica. After a topic was deleted and created again, the nonce
// differs, so a late finish from before cannot hit a message of the new topic. Of and Parse are inverse for
// every place in range.
//
// It has no state and no goroutines; any goroutine may call it.
package msgid
