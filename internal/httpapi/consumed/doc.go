// Package consumed writes the answers of POST /v1/consume: a JSON object, a body of several parts, or server-sent
// events.
//
// It chooses the form by the header Accept and writes batches. It takes no messages and settles none: the batch and
// its fate belong to the caller (internal/httpapi).
//
// Invariants: each message has its id, receipt, attempts, place and the whole of its body, as text only if it is
// valid UTF-8 and no base64 is requested; an error of the writer ends the answer and is returned, so that the
// caller gives the messages back.
//
// It has no state and no goroutines.
package consumed
