package protocol_test

import (
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// ext is a message of PUB_EXT.
func ext(header, body string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(len(header)))) + header + body
}

func TestExtendedClientsSeeHeadersAndStockClientsDoNot(t *testing.T) {
	b := newBroker(t)
	p := b.dial()
	p.send("PUB_EXT t\n" + sized(ext(`{"k":"v"}`, "body")))
	p.response("OK")
	p.publish("t", "plain")

	stock := b.dial()
	stock.subscribe("t", "ch", "2")
	require.Equal(t, "body", stock.message().body)
	require.Equal(t, "plain", stock.message().body)

	c := b.dial()
	c.identify(`{"extend_support":true}`)
	c.subscribe("t", "other", "2")
	p.send("PUB_EXT t\n" + sized(ext(`{"k":"v"}`, "body")))
	p.response("OK")
	p.publish("t", "plain")
	raw := c.message().body
	require.EqualValues(t, 4, raw[0])
	n := int(binary.BigEndian.Uint16([]byte(raw[1:])))
	require.JSONEq(t, `{"k":"v"}`, raw[3:3+n])
	require.Equal(t, "body", raw[3+n:])
	require.Equal(t, "\x00plain", c.message().body)
}

func TestOrderedMessagesCarryAFencingToken(t *testing.T) {
	for _, header := range []string{"", "{}", `{ "k":"v"}`} {
		b := newBroker(t)
		c := b.dial()
		c.identify(`{"extend_support":true}`)
		c.send("SUB_ORDERED t ch\nRDY 1\n")
		c.response("OK")
		p := b.dial()
		p.send("PUB_EXT t\n" + sized(ext(header, "body")))
		p.response("OK")
		raw := c.message().body
		n := int(binary.BigEndian.Uint16([]byte(raw[1:])))
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(raw[3:3+n]), &fields))
		require.Contains(t, fields, "##epoch")
		if header != "" && header != "{}" {
			require.Equal(t, "v", fields["k"])
		}
		require.EqualValues(t, 4, binary.BigEndian.Uint32([]byte(raw[3+n+8:])), "the body's size")
		require.Equal(t, "body", raw[3+n+12:])
	}
}

func TestBadExtendedCommands(t *testing.T) {
	for command, want := range map[string]string{
		"PUB_EXT t\n" + sized(ext("[1]", "b")):                "E_INVALID_JSON_HEADER PUB_EXT header is not a JSON object",
		"PUB_EXT t\n" + sized(ext("null", "b")):               "E_INVALID_JSON_HEADER PUB_EXT header is not a JSON object",
		"PUB_EXT t\n" + sized(ext(`{"##trace_id":"1"}`, "b")): "E_EXT_NOT_SUPPORT PUB_EXT ##trace_id is not supported",
		"PUB_EXT t\n" + sized("\xff\xff{}"):                   "E_BAD_MESSAGE PUB_EXT header does not fit the message of 4 bytes",
		"PUB_EXT t\n" + sized(ext("{}", "")):                  "E_BAD_MESSAGE PUB_EXT header does not fit the message of 4 bytes",
		"PUB_EXT\n":                                           "E_INVALID PUB_EXT insufficient number of parameters",
		"SUB_ORDERED t ch x\n":                                "E_BAD_PARTITION SUB_ORDERED partition \"x\" is not valid",
		"SUB_ORDERED t\n":                                     "E_INVALID SUB_ORDERED insufficient number of parameters",
		"SUB_ORDERED t ch:bad\n":                              "E_BAD_CHANNEL SUB_ORDERED channel name \"ch:bad\" is not valid",
	} {
		c := newBroker(t).dial()
		c.send(command)
		c.fatal(want)
	}
}
