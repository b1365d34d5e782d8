package tcp_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
)

const badSize = "\xff\xff\xff\xff" // -1

// Each row is sent on its own connection: the answer is the exact text, and then the connection ends.
func TestFatalErrors(t *testing.T) {
	const id = "0123456789abcdef"
	sub := "SUB t c\n"
	for _, row := range []struct{ send, want string }{
		{"X\n", "E_INVALID invalid command X"},
		{"\n", "E_INVALID invalid command "},
		{"\r\n", "E_INVALID invalid command "},
		{"pub t\n", "E_INVALID invalid command pub"},
		{"ASDF a b\n", "E_INVALID invalid command ASDF"},

		{"IDENTIFY\n" + sized(repeat(" ", 1001)), "E_BAD_BODY IDENTIFY body too big 1001 > 1000"},
		{"IDENTIFY\n\x00\x00\x00\x00", "E_BAD_BODY IDENTIFY invalid body size 0"},
		{"IDENTIFY\n" + badSize, "E_BAD_BODY IDENTIFY invalid body size -1"},
		{"IDENTIFY\n" + sized("x"), "E_BAD_BODY IDENTIFY failed to decode JSON body"},
		{"IDENTIFY\n" + sized(`{"heartbeat_interval":"1"}`), "E_BAD_BODY IDENTIFY failed to decode JSON body"},
		{"IDENTIFY\n" + sized(`{"heartbeat_interval":100}`), "E_BAD_BODY IDENTIFY heartbeat interval (100) is invalid"},
		{"IDENTIFY\n" + sized(`{"heartbeat_interval":60001}`), "E_BAD_BODY IDENTIFY heartbeat interval (60001) is invalid"},
		{"IDENTIFY\n" + sized(`{"heartbeat_interval":-2}`), "E_BAD_BODY IDENTIFY heartbeat interval (-2) is invalid"},
		{"IDENTIFY\n" + sized(`{"output_buffer_timeout":30001,"output_buffer_size":1}`), "E_BAD_BODY IDENTIFY output buffer timeout (30001) is invalid"},
		{"IDENTIFY\n" + sized(`{"output_buffer_timeout":24}`), "E_BAD_BODY IDENTIFY output buffer timeout (24) is invalid"},
		{"IDENTIFY\n" + sized(`{"output_buffer_size":65537}`), "E_BAD_BODY IDENTIFY output buffer size (65537) is invalid"},
		{"IDENTIFY\n" + sized(`{"output_buffer_size":63}`), "E_BAD_BODY IDENTIFY output buffer size (63) is invalid"},
		{"IDENTIFY\n" + sized(`{"sample_rate":100}`), "E_BAD_BODY IDENTIFY sample rate (100) is invalid"},
		{"IDENTIFY\n" + sized(`{"sample_rate":-1}`), "E_BAD_BODY IDENTIFY sample rate (-1) is invalid"},
		{"IDENTIFY\n" + sized(`{"msg_timeout":999}`), "E_BAD_BODY IDENTIFY msg timeout (999) is invalid"},
		{"IDENTIFY\n" + sized(`{"msg_timeout":-1}`), "E_BAD_BODY IDENTIFY msg timeout (-1) is invalid"},
		{"IDENTIFY\n" + sized(`{"feature_negotiation":true,"snappy":true,"deflate":true}`), "E_IDENTIFY_FAILED cannot enable both deflate and snappy compression"},

		{"AUTH x\n", "E_INVALID AUTH invalid number of parameters"},
		{"AUTH\n\x00\x00\x00\x00", "E_BAD_BODY AUTH invalid body size 0"},
		{"AUTH\n" + sized(repeat("x", 1001)), "E_BAD_BODY AUTH body too big 1001 > 1000"},
		{"AUTH\n" + sized("secret"), "E_AUTH_DISABLED AUTH disabled"},

		{"SUB\n", "E_INVALID SUB insufficient number of parameters"},
		{"SUB t\n", "E_INVALID SUB insufficient number of parameters"},
		{"SUB  t c\n", `E_BAD_TOPIC SUB topic name "" is not valid`},
		{"SUB t$ c\n", `E_BAD_TOPIC SUB topic name "t$" is not valid`},
		{"SUB t c$\n", `E_BAD_CHANNEL SUB channel name "c$" is not valid`},
		{"SUB test:ephemeral c\n", `E_BAD_TOPIC SUB topic name "test:ephemeral" is not valid`},

		{"RDY 1\n", "E_INVALID cannot RDY in current state"},
		{"FIN " + id + "\n", "E_INVALID cannot FIN in current state"},
		{"REQ " + id + " 0\n", "E_INVALID cannot REQ in current state"},
		{"TOUCH " + id + "\n", "E_INVALID cannot TOUCH in current state"},
		{"CLS\n", "E_INVALID cannot CLS in current state"},

		{sub + "SUB t c\n", "E_INVALID cannot SUB in current state"},
		{sub + "IDENTIFY\n", "E_INVALID cannot IDENTIFY in current state"},
		{sub + "AUTH\n", "E_INVALID cannot AUTH in current state"},
		{sub + "RDY -1\n", "E_INVALID RDY could not parse count -1"},
		{sub + "RDY 1.5\n", "E_INVALID RDY could not parse count 1.5"},
		{sub + "RDY 2501\n", "E_INVALID RDY count 2501 out of range 0-2500"},
		{sub + "FIN\n", "E_INVALID FIN insufficient number of params"},
		{sub + "FIN \n", "E_INVALID invalid message ID"},
		{sub + "FIN x\n", "E_INVALID invalid message ID"},
		{sub + "REQ " + id + "\n", "E_INVALID REQ insufficient number of params"},
		{sub + "REQ " + id + " x\n", "E_INVALID REQ could not parse timeout x"},
		{sub + "TOUCH\n", "E_INVALID TOUCH insufficient number of params"},

		{"PUB\n", "E_INVALID PUB insufficient number of parameters"},
		{"PUB t$\n", `E_BAD_TOPIC PUB topic name "t$" is not valid`},
		{"PUB t\n\x00\x00\x00\x00", "E_BAD_MESSAGE PUB invalid message body size 0"},
		{"PUB t\n" + badSize, "E_BAD_MESSAGE PUB invalid message body size -1"},
		{"PUB t\n" + sized(repeat("x", 101)), "E_BAD_MESSAGE PUB message too big 101 > 100"},

		{"MPUB\n", "E_INVALID MPUB insufficient number of parameters"},
		{"MPUB t$\n", `E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "t$" is not valid`},
		{"MPUB t\n\x00\x00\x00\x00", "E_BAD_BODY MPUB invalid body size 0"},
		{"MPUB t\n\x00\x00\x04\x7c", "E_BAD_BODY MPUB body too big 1148 > 1000"},
		{"MPUB t\n\x00\x00\x00\x04\x00\x00\x00\x00", "E_BAD_BODY MPUB invalid message count 0"},
		{"MPUB t\n\x00\x00\x00\x04" + badSize, "E_BAD_BODY MPUB invalid message count -1"},
		{"MPUB t\n\x00\x00\x00\x04\x00\x00\x00\xc8", "E_BAD_BODY MPUB invalid message count 200"},
		{"MPUB t\n" + multi("a", ""), "E_BAD_MESSAGE MPUB invalid message(1) body size 0"},
		{"MPUB t\n" + multi("a", repeat("x", 101)), "E_BAD_MESSAGE MPUB message too big 101 > 100"},

		{"DPUB t\n", "E_INVALID DPUB insufficient number of parameters"},
		{"DPUB t$ 1\n", `E_BAD_TOPIC DPUB topic name "t$" is not valid`},
		{"DPUB t x\n", "E_INVALID DPUB could not parse timeout x"},
		{"DPUB t -1\n", "E_INVALID DPUB could not parse timeout -1"},
		{"DPUB t 3600100\n", "E_INVALID DPUB timeout 3600100 out of range 0-3600000"},
		{"DPUB t 3600001\n", "E_INVALID DPUB timeout 3600001 out of range 0-3600000"},
		{sub + "RDY 18446744073709551617\n", "E_INVALID RDY count 18446744073709551617 out of range 0-2500"},
		{"DPUB t 18446744073709551616\n", "E_INVALID DPUB timeout 18446744073709551616 out of range 0-3600000"},
		{"DPUB t 340282366920938463463374607431768211456\n", "E_INVALID DPUB timeout 340282366920938463463374607431768211456 out of range 0-3600000"},
		{"DPUB t 9223372036854775808\n", "E_INVALID DPUB timeout 9223372036854775808 out of range 0-3600000"},
		{"DPUB t 1\n\x00\x00\x00\x00", "E_BAD_MESSAGE DPUB invalid message body size 0"},
		{"DPUB t 1\n" + sized(repeat("x", 101)), "E_BAD_MESSAGE DPUB message too big 101 > 100"},
	} {
		t.Run(fmt.Sprintf("%.24q", row.send), func(t *testing.T) {
			b := newBroker(t, small)
			c := b.dial()
			c.send(row.send)
			if len(row.send) > len(sub) && row.send[:len(sub)] == sub {
				c.response("OK")
			}
			c.fatal(row.want)
			require.Empty(t, b.cluster.Puts())
		})
	}
}

func small(s *setup) { s.options.MaxMsgSize, s.options.MaxBodySize = 100, 1000 }

// A body that ends too early: the client closes its sending half.
func TestShortBodies(t *testing.T) {
	for _, row := range []struct{ send, want string }{
		{"IDENTIFY\n\x00\x00", "E_BAD_BODY IDENTIFY failed to read body size"},
		{"IDENTIFY\n\x00\x00\x00\x05ab", "E_BAD_BODY IDENTIFY failed to read body"},
		{"AUTH\n\x00", "E_BAD_BODY AUTH failed to read body size"},
		{"AUTH\n\x00\x00\x00\x05ab", "E_BAD_BODY AUTH failed to read body"},
		{"PUB t\n\x00\x00", "E_BAD_MESSAGE PUB failed to read message body size"},
		{"PUB t\n\x00\x00\x00\x05ab", "E_BAD_MESSAGE PUB failed to read message body"},
		{"DPUB t 1\n\x00\x00\x00\x05ab", "E_BAD_MESSAGE DPUB failed to read message body"},
		{"MPUB t\n", "E_BAD_BODY MPUB failed to read body size"},
		{"MPUB t\n\x00\x00\x00\x09", "E_BAD_BODY MPUB failed to read message count"},
		{"MPUB t\n\x00\x00\x00\x09\x00\x00\x00\x01", "E_BAD_MESSAGE MPUB failed to read message(0) body size"},
		{"MPUB t\n\x00\x00\x00\x09\x00\x00\x00\x01\x00\x00\x00\x05a", "E_BAD_MESSAGE MPUB failed to read message body"},
	} {
		t.Run(fmt.Sprintf("%.24q", row.send), func(t *testing.T) {
			c := newBroker(t).dial()
			c.send(row.send)
			require.NoError(t, c.conn.(interface{ CloseWrite() error }).CloseWrite())
			c.fatal(row.want)
		})
	}
}

func TestBadMagic(t *testing.T) {
	b := newBroker(t)
	for _, magic := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "  V1PING\n", "  V3"} {
		c := b.dialMagic(magic)
		c.fatal("E_BAD_PROTOCOL")
	}
}

func TestLineLimit(t *testing.T) {
	c := newBroker(t).dial()
	c.send("PUB " + repeat("x", 16384-5) + "\n")
	f := c.read()
	require.Contains(t, f.data, "E_BAD_TOPIC PUB topic name", "a line of 16384 bytes is read")
	c = newBroker(t).dial()
	c.send(repeat("x", 20000))
	c.closed()
}

// An error that concerns only its put leaves the connection open.
func TestOpenErrors(t *testing.T) {
	const id = "0123456789abcdef"
	b := newBroker(t)
	b.publishOne("t", "m")
	owner, other := b.dial(), b.dial()
	owner.subscribe("t", "c", "1")
	m := owner.message()
	other.subscribe("t", "c", "0")
	other.send("FIN " + id + "\nREQ " + id + " 0\nTOUCH " + id + "\n")
	other.error("E_FIN_FAILED FIN " + id + " failed ID not in flight")
	other.error("E_REQ_FAILED REQ " + id + " failed ID not in flight")
	other.error("E_TOUCH_FAILED TOUCH " + id + " failed ID not in flight")
	other.send("FIN " + m.id + "\nREQ " + m.id + " 0\nTOUCH " + m.id + "\n")
	other.error("E_FIN_FAILED FIN " + m.id + " failed client does not own message")
	other.error("E_REQ_FAILED REQ " + m.id + " failed client does not own message")
	other.error("E_TOUCH_FAILED TOUCH " + m.id + " failed client does not own message")
	other.quiet()
}

func TestValidNames(t *testing.T) {
	for name, want := range map[string]bool{
		"test": true, "test-with_period.": true, "test#ephemeral": true,
		"test:ephemeral": false, "": false, "#ephemeral": false, "a b": false,
		repeat("x", 64): true, repeat("x", 65): false,
		repeat("x", 54) + "#ephemeral": true, repeat("x", 55) + "#ephemeral": false,
	} {
		require.Equal(t, want, api.ValidName(name), name)
	}
}

// "PUB \n" as the first put of a connection.
func TestEmptyTopicOfAPut(t *testing.T) {
	b := newBroker(t)
	for verb, line := range map[string]string{
		"E_BAD_TOPIC PUB topic name \"\" is not valid":              "PUB \n" + sized("x"),
		"E_BAD_TOPIC DPUB topic name \"\" is not valid":             "DPUB  0\n" + sized("x"),
		"E_BAD_TOPIC E_BAD_TOPIC MPUB topic name \"\" is not valid": "MPUB \n" + multi("x"),
		"E_BAD_TOPIC PUB_EXT topic name \"\" is not valid":          "PUB_EXT \n" + sized("\x00\x00x"),
	} {
		c := b.dial()
		c.send(line)
		c.fatal(verb)
	}
}
