// Package mpub decodes the body of POST /mpub into a draft of one put: one message a line, or a number of
// length-prefixed messages; and the records of POST /v1/topic/append.
//
// It checks sizes and publishes nothing; the answers to its errors are those of internal/httpapi.
//
// Invariants: a body needs no more memory than its limits allow, whatever sizes it announces; empty lines are no
// messages; a body of length-prefixed messages without a header and a deadline is read directly into the batch.
//
// It has no goroutines; a decoder belongs to one request.
package mpub
