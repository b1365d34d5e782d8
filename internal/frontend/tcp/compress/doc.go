// Package compress has the compressors of the NSQ protocol: snappy and deflate, for connections that are idle most of
// the time.
//
// It bounds what the input of a client decompresses to, and decompresses nothing itself. A writer belongs to one
// connection, and its methods are called under the lock of the connection's output.
//
// # Invariants
//
//  1. Behind a Flush everything that was written can be read.
//  2. A connection whose output is flushed and parked holds no memory of a compressor.
//  3. A connection that finds no memory for a compressor (package budget) continues: its stream is valid, and larger.
//
// # Goroutines
//
// None.
package compress
