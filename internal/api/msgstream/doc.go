// Package msgstream is the format in which messages leave a cluster and come into one: the stream of `nsqctl export`,
// and the body of POST /v1/topic/append. docs/reference/export-format.md describes it byte by byte.
//
// It reads and writes streams. It asks no broker and opens no file.
//
// # Invariants
//
//  1. The checksum of a record covers the checksum of the record before it: a record that is
//     altered, removed, repeated or moved is noticed at that record or at the next one.
//  2. A stream without its last record, End, is torn. End has the counts of the whole stream.
//  3. A length in the stream is believed only as far as the bytes are there: damage costs no memory.
//  4. The format is fixed by golden bytes. A field of a JSON record may be added; a record of an
//     unknown kind is refused.
//
// The package starts no goroutine.
package msgstream
