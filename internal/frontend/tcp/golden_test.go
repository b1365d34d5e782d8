package tcp_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
)

// frameBytes reads one frame as it is on the wire. The time of a message is 0 in the result.
func (c *client) frameBytes() string {
	c.t.Helper()
	var head [8]byte
	_, err := io.ReadFull(c.r, head[:])
	require.NoError(c.t, err)
	data := make([]byte, binary.BigEndian.Uint32(head[:])-4)
	_, err = io.ReadFull(c.r, data)
	require.NoError(c.t, err)
	if head[7] == 2 {
		require.NotZero(c.t, binary.BigEndian.Uint64(data))
		clear(data[:8])
	}
	return string(head[:]) + string(data)
}

// TestGoldenExtendedFrames: the bytes of every extended command, of its answer, and of the message
// as each kind of consumer receives it. Clients in other languages have the same bytes.
func TestGoldenExtendedFrames(t *testing.T) {
	const (
		ok     = "\x00\x00\x00\x06\x00\x00\x00\x00OK"
		noTime = "\x00\x00\x00\x00\x00\x00\x00\x00"
		first  = "\x00\x01" // attempts
	)
	traced := func(id, trace, sequence, size byte) string {
		return "\x00\x00\x00\x22\x00\x00\x00\x00OK" +
			"\x00\x00\x00\x00\x00\x00\x00" + string([]byte{id}) + "\x00\x00\x00\x00\x00\x00\x00" + string([]byte{trace}) +
			"\x00\x00\x00\x00\x00\x00\x00" + string([]byte{sequence}) + "\x00\x00\x00" + string([]byte{size})
	}
	b := newBroker(t)
	consumers := map[string]*client{}
	for name, subscribe := range map[string]string{
		"stock":    "SUB t stock\nRDY 9\n",
		"extended": "IDENTIFY\n\x00\x00\x00\x17{\"extend_support\":true}SUB t extended\nRDY 9\n",
		"advanced": "IDENTIFY\n\x00\x00\x00\x17{\"extend_support\":true}SUB_ADVANCED t advanced msgcount:0\nRDY 9\n",
		"position": "SUB_ADVANCED t position\nRDY 9\n",
		"ordered":  "IDENTIFY\n\x00\x00\x00\x17{\"extend_support\":true}SUB_ORDERED t ordered\nRDY 1\n",
	} {
		c := b.dial()
		c.send(subscribe)
		for range 1 + strings.Count(subscribe, "IDENTIFY") {
			require.Equal(t, ok, c.frameBytes(), name)
		}
		consumers[name] = c
	}
	id := func(n int) string { return fmt.Sprintf("%016x", n) }
	at := func(sequence, size byte) string {
		return "\x00\x00\x00\x00\x00\x00\x00" + string([]byte{sequence}) + "\x00\x00\x00" + string([]byte{size})
	}
	p := b.dial()
	for i, x := range []struct {
		name, command, answer string
		messages              map[string]string // the part between the id and the end of each message
	}{
		{"PUB_EXT with headers", "PUB_EXT t\n\x00\x00\x00\x0e\x00\x0a{\"k\":\"ü\"}hi", ok, map[string]string{
			"stock": "hi", "extended": "\x04\x00\x0a{\"k\":\"ü\"}hi", "advanced": "\x04\x00\x0a{\"k\":\"ü\"}" + at(0, 2) + "hi",
			"position": at(0, 2) + "hi", "ordered": "\x04\x00\x16{\"##epoch\":1,\"k\":\"ü\"}" + at(0, 2) + "hi",
		}},
		{"PUB_EXT without headers", "PUB_EXT t\n\x00\x00\x00\x04\x00\x00hi", ok, map[string]string{
			"stock": "hi", "extended": "\x00hi", "advanced": "\x00" + at(1, 2) + "hi",
			"position": at(1, 2) + "hi", "ordered": "\x04\x00\x0d{\"##epoch\":1}" + at(1, 2) + "hi",
		}},
		{"PUB_EXT with a trace id", "PUB_EXT t\n\x00\x00\x00\x16\x00\x12{\"##trace_id\":\"7\"}hi", traced(3, 7, 2, 2), map[string]string{
			"stock": "hi", "extended": "\x04\x00\x12{\"##trace_id\":\"7\"}hi", "advanced": "\x04\x00\x12{\"##trace_id\":\"7\"}" + at(2, 2) + "hi",
			"position": at(2, 2) + "hi", "ordered": "\x04\x00\x1e{\"##epoch\":1,\"##trace_id\":\"7\"}" + at(2, 2) + "hi",
		}},
		{"PUB_TRACE", "PUB_TRACE t\n\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x08hi", traced(4, 8, 3, 2), map[string]string{
			"stock": "hi", "extended": "\x04\x00\x12{\"##trace_id\":\"8\"}hi", "advanced": "\x04\x00\x12{\"##trace_id\":\"8\"}" + at(3, 2) + "hi",
			"position": at(3, 2) + "hi", "ordered": "\x04\x00\x1e{\"##epoch\":1,\"##trace_id\":\"8\"}" + at(3, 2) + "hi",
		}},
		{"MPUB_EXT with a tag", "MPUB_EXT t\n\x00\x00\x00\x2f\x00\x00\x00\x01\x00\x00\x00\x27\x00\x23{\"##client_dispatch_tag\":\"a\",\"n\":1}hi", ok, map[string]string{
			"stock": "hi", "extended": "\x04\x00\x23{\"##client_dispatch_tag\":\"a\",\"n\":1}hi",
			"advanced": "\x04\x00\x23{\"##client_dispatch_tag\":\"a\",\"n\":1}" + at(4, 2) + "hi",
			"position": at(4, 2) + "hi", "ordered": "\x04\x00\x2f{\"##epoch\":1,\"##client_dispatch_tag\":\"a\",\"n\":1}" + at(4, 2) + "hi",
		}},
		{"MPUB_TRACE", "MPUB_TRACE t\n\x00\x00\x00\x12\x00\x00\x00\x01\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x09hi", traced(6, 0, 5, 2), map[string]string{
			"stock": "hi", "extended": "\x04\x00\x12{\"##trace_id\":\"9\"}hi", "advanced": "\x04\x00\x12{\"##trace_id\":\"9\"}" + at(5, 2) + "hi",
			"position": at(5, 2) + "hi", "ordered": "\x04\x00\x1e{\"##epoch\":1,\"##trace_id\":\"9\"}" + at(5, 2) + "hi",
		}},
	} {
		p.send(x.command)
		require.Equal(t, x.answer, p.frameBytes(), x.name)
		for who, want := range x.messages {
			message := noTime + first + id(i+1) + want
			length := binary.BigEndian.AppendUint32(nil, uint32(4+len(message)))
			c := consumers[who]
			require.Equal(t, string(length)+"\x00\x00\x00\x02"+message, c.frameBytes(), "%s, %s", x.name, who)
			if who == "ordered" {
				c.send("FIN " + id(i+1) + "\n")
			}
		}
	}
}

// TestGoldenErrors: the bytes of the errors of extended commands, and whether the connection ends.
func TestGoldenErrors(t *testing.T) {
	for _, x := range []struct {
		name, command, answer string
		ends                  bool
	}{
		{"no topic", "PUB_EXT\n", "\x00\x00\x007\x00\x00\x00\x01E_INVALID PUB_EXT insufficient number of parameters", true},
		{"a bad topic", "PUB_EXT t$\n", "\x00\x00\x004\x00\x00\x00\x01E_BAD_TOPIC PUB_EXT topic name \"t$\" is not valid", true},
		{"a partition that is no number", "PUB_EXT t x\n\x00\x00\x00\x04\x00\x00hi", "\x00\x00\x006\x00\x00\x00\x01E_BAD_PARTITION PUB_EXT partition \"x\" is not valid", true},
		{"a partition that the topic does not have", "PUB_EXT t 1\n\x00\x00\x00\x04\x00\x00hi", "\x00\x00\x00g\x00\x00\x00\x01E_TOPIC_NOT_EXIST PUB failed invalid argument: the topic has no partition 1, but 0 to 0, not stored", false},
		{"no size", "PUB_EXT t\n\x00\x00\x00\x00", "\x00\x00\x005\x00\x00\x00\x01E_BAD_MESSAGE PUB_EXT invalid message body size 0", true},
		{"a header longer than the message", "PUB_EXT t\n\x00\x00\x00\x04\x00\x09{}", "\x00\x00\x00D\x00\x00\x00\x01E_BAD_MESSAGE PUB_EXT header does not fit the message of 4 bytes", true},
		{"no body", "PUB_EXT t\n\x00\x00\x00\x04\x00\x02{}", "\x00\x00\x00D\x00\x00\x00\x01E_BAD_MESSAGE PUB_EXT header does not fit the message of 4 bytes", true},
		{"a header that is no object", "PUB_EXT t\n\x00\x00\x00\x07\x00\x03[1]hi", "\x00\x00\x00=\x00\x00\x00\x01E_INVALID_JSON_HEADER PUB_EXT header is not a JSON object", true},
		{"a reserved name", "PUB_EXT t\n\x00\x00\x00\x11\x00\x0d{\"##epoch\":9}hi", "\x00\x00\x00R\x00\x00\x00\x01E_INVALID_JSON_HEADER PUB_EXT invalid argument: the header ##epoch is reserved", true},
		{"a key that is no text", "PUB_EXT t\n\x00\x00\x00\x0f\x00\x0b{\"##key\":7}hi", "\x00\x00\x008\x00\x00\x00\x01E_INVALID_JSON_HEADER PUB_EXT ##key must be a string", true},
		{"an id that is no text", "PUB_EXT t\n\x00\x00\x00\x0e\x00\n{\"##id\":7}hi", "\x00\x00\x007\x00\x00\x00\x01E_INVALID_JSON_HEADER PUB_EXT ##id must be a string", true},
		{"an empty id", "PUB_EXT t\n\x00\x00\x00\x0f\x00\x0b{\"##id\":\"\"}hi", "\x00\x00\x00<\x00\x00\x00\x01E_INVALID_JSON_HEADER PUB_EXT ##id must be 1 to 64 bytes", true},
		{"a trace id that is no decimal", "PUB_EXT t\n\x00\x00\x00\x14\x00\x10{\"##trace_id\":1}hi", "\x00\x00\x00E\x00\x00\x00\x01INVALID_TRACE_ID PUB_EXT ##trace_id must be a decimal in a string", true},
		{"ids of several without a key", "MPUB_EXT t\n\x00\x00\x00*\x00\x00\x00\x02\x00\x00\x00\x0f\x00\x0c{\"##id\":\"1\"}a\x00\x00\x00\x0f\x00\x0c{\"##id\":\"2\"}b", "\x00\x00\x00b\x00\x00\x00\x01E_INVALID_JSON_HEADER MPUB_EXT messages with ##id or ##seq require a ##key in a put of several", true},
		{"SUB_ADVANCED with a partition that is no number", "SUB_ADVANCED t ch x\n", "\x00\x00\x00;\x00\x00\x00\x01E_BAD_PARTITION SUB_ADVANCED partition \"x\" is not valid", true},
	} {
		c := newBroker(t).dial()
		c.send(x.command)
		require.Equal(t, x.answer, c.frameBytes(), x.name)
		if x.ends {
			c.closed()
		} else {
			c.publish("t", "the connection stays")
		}
	}
}

// TestGoldenIDsAndPartitions: the bytes of puts with an id, of the answer to a repeat, and of commands that name a
// partition, with the message as a stock and an extended consumer receive it. A repeat has none.
func TestGoldenIDsAndPartitions(t *testing.T) {
	b := newBroker(t)
	consume := func(commands string, answers int) *client {
		c := b.dial()
		c.send(commands)
		for range answers {
			require.Equal(t, "\x00\x00\x00\x06\x00\x00\x00\x00OK", c.frameBytes())
		}
		return c
	}
	stock := consume("SUB t stock 0\nRDY 99\n", 1)
	extended := consume("IDENTIFY\n\x00\x00\x00\x17{\"extend_support\":true}SUB t extended -1\nRDY 99\n", 2)
	p := b.dial()
	for _, x := range []struct{ name, command, answer, stock, extended string }{
		{"##id, new", "PUB_EXT t\n\x00\x00\x00\x10\x00\x0c{\"##id\":\"a\"}hi",
			"\x00\x00\x00\x06\x00\x00\x00\x00OK", "\x00\x00\x00 \x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000001hi",
			"\x00\x00\x00/\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000001\x04\x00\x0c{\"##id\":\"a\"}hi"},
		{"##id, again", "PUB_EXT t\n\x00\x00\x00\x10\x00\x0c{\"##id\":\"a\"}hi",
			"\x00\x00\x00\x06\x00\x00\x00\x00OK", "", ""},
		{"##id with a trace id, new", "PUB_EXT t\n\x00\x00\x00!\x00\x1d{\"##id\":\"b\",\"##trace_id\":\"7\"}hi",
			"\x00\x00\x00\"\x00\x00\x00\x00OK\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02", "\x00\x00\x00 \x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000002hi",
			"\x00\x00\x00@\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000002\x04\x00\x1d{\"##id\":\"b\",\"##trace_id\":\"7\"}hi"},
		{"##id with a trace id, again", "PUB_EXT t\n\x00\x00\x00!\x00\x1d{\"##id\":\"b\",\"##trace_id\":\"7\"}hi",
			"\x00\x00\x00\"\x00\x00\x00\x00OK\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02", "", ""},
		{"##id of the first, with a trace id", "PUB_EXT t\n\x00\x00\x00!\x00\x1d{\"##id\":\"a\",\"##trace_id\":\"9\"}hi",
			"\x00\x00\x00\"\x00\x00\x00\x00OK\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02", "", ""},
		{"PUB to partition 0", "PUB t 0\n\x00\x00\x00\x02hi",
			"\x00\x00\x00\x06\x00\x00\x00\x00OK", "\x00\x00\x00 \x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000003hi",
			"\x00\x00\x00!\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000003\x00hi"},
		{"PUB to any partition", "PUB t -1\n\x00\x00\x00\x02hi",
			"\x00\x00\x00\x06\x00\x00\x00\x00OK", "\x00\x00\x00 \x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000004hi",
			"\x00\x00\x00!\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000004\x00hi"},
		{"PUB to a partition that the topic does not have", "PUB t 1\n\x00\x00\x00\x02hi",
			"\x00\x00\x00g\x00\x00\x00\x01E_TOPIC_NOT_EXIST PUB failed invalid argument: the topic has no partition 1, but 0 to 0, not stored", "", ""},
		{"MPUB to partition 0", "MPUB t 0\n\x00\x00\x00\n\x00\x00\x00\x01\x00\x00\x00\x02hi",
			"\x00\x00\x00\x06\x00\x00\x00\x00OK", "\x00\x00\x00 \x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000005hi",
			"\x00\x00\x00!\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000005\x00hi"},
		{"PUB_EXT to partition 0", "PUB_EXT t 0\n\x00\x00\x00\x0d\x00\x09{\"k\":\"v\"}hi",
			"\x00\x00\x00\x06\x00\x00\x00\x00OK", "\x00\x00\x00 \x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000006hi",
			"\x00\x00\x00,\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000006\x04\x00\x09{\"k\":\"v\"}hi"},
		{"PUB_EXT to any partition", "PUB_EXT t -1\n\x00\x00\x00\x0d\x00\x09{\"k\":\"v\"}hi",
			"\x00\x00\x00\x06\x00\x00\x00\x00OK", "\x00\x00\x00 \x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000007hi",
			"\x00\x00\x00,\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000007\x04\x00\x09{\"k\":\"v\"}hi"},
		{"MPUB_EXT to partition 0", "MPUB_EXT t 0\n\x00\x00\x00\x15\x00\x00\x00\x01\x00\x00\x00\x0d\x00\x09{\"k\":\"v\"}hi",
			"\x00\x00\x00\x06\x00\x00\x00\x00OK", "\x00\x00\x00 \x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000008hi",
			"\x00\x00\x00,\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000008\x04\x00\x09{\"k\":\"v\"}hi"},
		{"PUB_TRACE to partition 0", "PUB_TRACE t 0\n\x00\x00\x00\n\x00\x00\x00\x00\x00\x00\x00\x08hi",
			"\x00\x00\x00\"\x00\x00\x00\x00OK\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x02", "\x00\x00\x00 \x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000009hi",
			"\x00\x00\x005\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000009\x04\x00\x12{\"##trace_id\":\"8\"}hi"},
		{"MPUB_TRACE to partition 0", "MPUB_TRACE t 0\n\x00\x00\x00\x12\x00\x00\x00\x01\x00\x00\x00\n\x00\x00\x00\x00\x00\x00\x00\x09hi",
			"\x00\x00\x00\"\x00\x00\x00\x00OK\x00\x00\x00\x00\x00\x00\x00\n\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x02", "\x00\x00\x00 \x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01000000000000000ahi",
			"\x00\x00\x005\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01000000000000000a\x04\x00\x12{\"##trace_id\":\"9\"}hi"},
	} {
		p.send(x.command)
		require.Equal(t, x.answer, p.frameBytes(), x.name)
		if x.stock != "" {
			require.Equal(t, x.stock, stock.frameBytes(), x.name)
			require.Equal(t, x.extended, extended.frameBytes(), x.name)
		}
	}
}

// TestGoldenSequences: the bytes of IDENTIFY with a producer_id and of numbered messages, new, again and refused. Each
// refusal leaves its connection open.
func TestGoldenSequences(t *testing.T) {
	b := newBroker(t)
	named := func(identify string) *client {
		c := b.dial()
		c.send(identify)
		require.Equal(t, "\x00\x00\x00\x06\x00\x00\x00\x00OK", c.frameBytes())
		return c
	}
	one, again := named("IDENTIFY\n\x00\x00\x00\x14{\"producer_id\":\"p1\"}"), named("IDENTIFY\n\x00\x00\x00\x14{\"producer_id\":\"p1\"}")
	other, nameless := named("IDENTIFY\n\x00\x00\x00\x14{\"producer_id\":\"p2\"}"), b.dial()
	consumer := named("IDENTIFY\n\x00\x00\x00\x17{\"extend_support\":true}")
	consumer.send("SUB t ch\nRDY 99\n")
	require.Equal(t, "\x00\x00\x00\x06\x00\x00\x00\x00OK", consumer.frameBytes())
	for _, x := range []struct {
		name                     string
		producer                 *client
		command, answer, message string
	}{
		{"new", one, "PUB_EXT t\n\x00\x00\x00\x0f\x00\x0b{\"##seq\":7}hi",
			"\x00\x00\x00\x06\x00\x00\x00\x00OK", "\x00\x00\x00.\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000001\x04\x00\x0b{\"##seq\":7}hi"},
		{"again, at the same connection", one, "PUB_EXT t\n\x00\x00\x00 \x00\x1c{\"##seq\":7,\"##trace_id\":\"9\"}hi",
			"\x00\x00\x00\"\x00\x00\x00\x00OK\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02", ""},
		{"again, at another connection of the producer", again, "PUB_EXT t\n\x00\x00\x00 \x00\x1c{\"##seq\":7,\"##trace_id\":\"9\"}hi",
			"\x00\x00\x00\"\x00\x00\x00\x00OK\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02", ""},
		{"of another producer", other, "PUB_EXT t\n\x00\x00\x00 \x00\x1c{\"##seq\":7,\"##trace_id\":\"9\"}hi",
			"\x00\x00\x00\"\x00\x00\x00\x00OK\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02", "\x00\x00\x00?\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000002\x04\x00\x1c{\"##seq\":7,\"##trace_id\":\"9\"}hi"},
		{"the largest", one, "PUB_EXT t\n\x00\x00\x00\x1e\x00\x1a{\"##seq\":9007199254740991}hi",
			"\x00\x00\x00\x06\x00\x00\x00\x00OK", "\x00\x00\x00=\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000003\x04\x00\x1a{\"##seq\":9007199254740991}hi"},
		{"the smallest, after a larger one", again, "PUB_EXT t\n\x00\x00\x00\x0f\x00\x0b{\"##seq\":0}hi",
			"\x00\x00\x00\x06\x00\x00\x00\x00OK", "\x00\x00\x00.\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x010000000000000004\x04\x00\x0b{\"##seq\":0}hi"},
		{"without a producer_id", nameless, "PUB_EXT t\n\x00\x00\x00\x0f\x00\x0b{\"##seq\":1}hi",
			"\x00\x00\x00J\x00\x00\x00\x01E_INVALID_JSON_HEADER PUB_EXT ##seq requires a producer_id in IDENTIFY", ""},
		{"with an id", one, "PUB_EXT t\n\x00\x00\x00\x1a\x00\x16{\"##id\":\"a\",\"##seq\":1}hi",
			"\x00\x00\x00G\x00\x00\x00\x01E_INVALID_JSON_HEADER PUB_EXT a message has ##id or ##seq, not both", ""},
		{"negative", one, "PUB_EXT t\n\x00\x00\x00\x10\x00\x0c{\"##seq\":-1}hi",
			"\x00\x00\x00Q\x00\x00\x00\x01E_INVALID_JSON_HEADER PUB_EXT ##seq must be an integer, 0 to 9007199254740991", ""},
		{"too large", one, "PUB_EXT t\n\x00\x00\x00\x1e\x00\x1a{\"##seq\":9007199254740992}hi",
			"\x00\x00\x00Q\x00\x00\x00\x01E_INVALID_JSON_HEADER PUB_EXT ##seq must be an integer, 0 to 9007199254740991", ""},
		{"one that float64 rounds", one, "PUB_EXT t\n\x00\x00\x00\x1e\x00\x1a{\"##seq\":9007199254740993}hi",
			"\x00\x00\x00Q\x00\x00\x00\x01E_INVALID_JSON_HEADER PUB_EXT ##seq must be an integer, 0 to 9007199254740991", ""},
		{"a fraction", one, "PUB_EXT t\n\x00\x00\x00\x11\x00\x0d{\"##seq\":1.5}hi",
			"\x00\x00\x00Q\x00\x00\x00\x01E_INVALID_JSON_HEADER PUB_EXT ##seq must be an integer, 0 to 9007199254740991", ""},
		{"text", one, "PUB_EXT t\n\x00\x00\x00\x11\x00\x0d{\"##seq\":\"1\"}hi",
			"\x00\x00\x00Q\x00\x00\x00\x01E_INVALID_JSON_HEADER PUB_EXT ##seq must be an integer, 0 to 9007199254740991", ""},
		{"null", one, "PUB_EXT t\n\x00\x00\x00\x12\x00\x0e{\"##seq\":null}hi",
			"\x00\x00\x00Q\x00\x00\x00\x01E_INVALID_JSON_HEADER PUB_EXT ##seq must be an integer, 0 to 9007199254740991", ""},
	} {
		x.producer.send(x.command)
		require.Equal(t, x.answer, x.producer.frameBytes(), x.name)
		if x.message != "" {
			require.Equal(t, x.message, consumer.frameBytes(), x.name)
		}
	}
	for _, c := range []*client{one, nameless} {
		c.publish("t", "the connection stays")
	}
	one.send("MPUB_EXT t\n" + multi(ext(`{"##key":"k","##seq":1.5}`, "a"), ext("", "b")))
	one.fatal("E_INVALID_JSON_HEADER MPUB_EXT ##seq must be an integer, 0 to 9007199254740991")
	again.send("MPUB_EXT t\n" + multi(ext(`{"##seq":20}`, "a"), ext(`{"##seq":21}`, "b")))
	again.fatal("E_INVALID_JSON_HEADER MPUB_EXT messages with ##id or ##seq require a ##key in a put of several")
	other.send("MPUB_EXT t\n" + multi(ext(`{"##key":"k","##seq":30}`, "a"), ext(`{"##key":"k","##seq":31}`, "b")))
	other.response("OK")
	other.send("PUB_EXT t\n" + sized(ext(`{"##key":"k","##seq":30,"##trace_id":"1"}`, "a")))
	other.response(tracedAnswer(6, 1, 1))
}

// TestProducerNames: which names a client may have, and that the answer to IDENTIFY repeats the name.
func TestProducerNames(t *testing.T) {
	c := newBroker(t).dial()
	require.NotContains(t, c.identify(`{"feature_negotiation":true}`), "producer_id")
	require.Contains(t, c.identify(`{"feature_negotiation":true,"producer_id":"billing-1"}`), `,"producer_id":"billing-1"}`)
	require.Contains(t, c.identify(`{"feature_negotiation":true}`), `,"producer_id":"billing-1"}`, "a later IDENTIFY leaves it")
	require.Contains(t, c.identify(`{"feature_negotiation":true,"producer_id":"`+repeat("ü", 16)+`"}`), repeat("ü", 16))
	for _, bad := range []string{repeat("x", 33), repeat("ü", 17), "a\xff", "a\uFFFD"} {
		c := newBroker(t).dial()
		c.send("IDENTIFY\n" + sized(`{"producer_id":"`+bad+`"}`))
		c.fatal("E_BAD_BODY IDENTIFY producer_id must be 1 to 32 bytes of UTF-8")
	}
	c = newBroker(t).dial()
	c.send("IDENTIFY\n" + sized(`{"producer_id":7}`))
	c.fatal("E_BAD_BODY IDENTIFY failed to decode JSON body")
}

// filtering is a cluster whose channels have one filter.
type filtering struct {
	api.Subscribers
	has string
}

func (f *filtering) Subscribe(ctx context.Context, r api.SubscribeRequest) (api.Subscription, error) {
	if r.Filter != "" && r.Filter != f.has {
		return nil, fmt.Errorf("%w %q but %q", outcome.ErrFilter, r.Filter, f.has)
	}
	return f.Subscribers.Subscribe(ctx, r)
}

// TestFiltersOfTheFork: the filter of a client is mapped to that of a channel. A client may consume
// a channel that has it; any other SUB is refused, and the connection stays.
func TestFiltersOfTheFork(t *testing.T) {
	const hint = ": a filter is a setting of the channel (nsqctl channel policy t ch --filter …)"
	for identify, want := range map[string]string{
		`{"desired_tag":"blue"}`: "tag=blue",
		`{"ext_filter":{"type":1,"filter_ext_key":"region","filter_data":"eu"}}`:                                         "header:region=eu",
		`{"ext_filter":{"type":1,"filter_ext_key":"##client_dispatch_tag","filter_data":"blue"}}`:                        "tag=blue",
		`{"ext_filter":{"type":1,"inverse":true,"filter_ext_key":"region","filter_data":"eu"}}`:                          "!header:region=eu",
		`{"ext_filter":{"type":2,"filter_ext_key":"region","filter_data":"^eu|us"}}`:                                     "header:region~=^eu|us",
		`{"ext_filter":{"type":3,"filter_ext_key":"region","filter_data":"eu-*"}}`:                                       "header:region*=eu-*",
		`{"ext_filter":{"type":3,"filter_ext_key":"region","filter_data":"eu-[ab]"}}`:                                    "!E_EXT_NOT_SUPPORT SUB ext_filter with a glob of other characters than * and ? is not supported",
		`{"ext_filter":{"type":4,"filter_ext_key":"any","filter_data_list":[{"filter_ext_key":"a","filter_data":"b"}]}}`: "!E_EXT_NOT_SUPPORT SUB ext_filter of several conditions is not supported: a filter is one condition",
		`{"desired_tag":"a","ext_filter":{"type":1}}`:                                                                    "!E_EXT_NOT_SUPPORT SUB desired_tag and ext_filter together are not supported: a filter is one condition",
	} {
		f := &filtering{has: want}
		b := newBroker(t, func(s *setup) { f.Subscribers, s.backend.Subscribers = s.backend.Subscribers, f })
		c := b.dial()
		c.identify(identify)
		if want[0] == '!' && want[1] == 'E' {
			c.send("SUB t ch\n")
			c.error(want[1:])
			c.publish("t", "the connection stays")
			continue
		}
		c.subscribe("t", "ch", "1")

		other := b.dial()
		f.has = "tag=red"
		other.identify(identify)
		other.send("SUB t ch\n")
		other.error(fmt.Sprintf("E_EXT_NOT_SUPPORT SUB the channel does not have the filter %q but %q%s", want, "tag=red", hint))
		other.publish("t", "the connection stays")
		f.has = want
		other.subscribe("t", "ch", "1") // another try, as after the policy was set
	}
	reply := newBroker(t).dial().identify(`{"feature_negotiation":true,"desired_tag":"blue"}`)
	require.Contains(t, reply, `"desired_tag":"blue"`)
	require.NotContains(t, newBroker(t).dial().identify(`{"feature_negotiation":true}`), "desired_tag")
}
