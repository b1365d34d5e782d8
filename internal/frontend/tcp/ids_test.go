package tcp_test

import (
	"strings"
	"testing"
)

// TestMessageIDs: a message that is published again under its id is answered with the first place,
// also by PUB_EXT with a trace. Ids that nobody could recognise are refused.
func TestMessageIDs(t *testing.T) {
	b := newBroker(t)
	p := b.dial()
	p.send("PUB_EXT t\n" + sized(ext(`{"##id":"order-1"}`, "one")))
	p.response("OK")
	for range 2 {
		p.send("PUB_EXT t\n" + sized(ext(`{"##id":"order-1","##trace_id":"7"}`, "one")))
		p.response(tracedAnswer(0, 7, 3))
	}
	p.send("PUB_EXT t\n" + sized(ext(`{"##id":"order-2","##trace_id":"8"}`, "two")))
	p.response(tracedAnswer(1, 8, 3))
	p.send("MPUB_EXT t\n" + multi(ext(`{"##id":"order-3","##key":"k"}`, "a"), ext(`{"##id":"order-4","##key":"k"}`, "b")))
	p.response("OK")
	p.send("PUB_TRACE t\n" + sized(tracedBody(9, "four")))
	p.response(tracedAnswer(4, 9, 4))

	for bad, why := range map[string]string{
		"PUB_EXT t\n" + sized(ext(`{"##id":7}`, "x")):                              "PUB_EXT ##id must be a string",
		"PUB_EXT t\n" + sized(ext(`{"##id":""}`, "x")):                             "PUB_EXT ##id must be 1 to 64 bytes",
		"PUB_EXT t\n" + sized(ext(`{"##id":"`+strings.Repeat("x", 65)+`"}`, "x")):  "PUB_EXT ##id must be 1 to 64 bytes",
		"MPUB_EXT t\n" + multi(ext(`{"##id":"5"}`, "a"), ext(`{"##id":"6"}`, "b")): "MPUB_EXT messages with ##id or ##seq require a ##key in a put of several",
	} {
		c := b.dial()
		c.send(bad)
		c.fatal("E_INVALID_JSON_HEADER " + why)
	}
}
