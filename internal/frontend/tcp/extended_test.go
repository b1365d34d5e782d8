package tcp_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
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

// tracedBody is a message of PUB_TRACE.
func tracedBody(trace uint64, body string) string {
	return string(binary.BigEndian.AppendUint64(nil, trace)) + body
}

// tracedAnswer is the answer to a traced put; the fake cluster counts sequences from 0 and ids from 1.
func tracedAnswer(sequence, trace uint64, size uint32) string {
	b := binary.BigEndian.AppendUint64([]byte("OK"), sequence+1)
	b = binary.BigEndian.AppendUint64(b, trace)
	b = binary.BigEndian.AppendUint64(b, sequence)
	return string(binary.BigEndian.AppendUint32(b, size))
}

func TestTracedPuts(t *testing.T) {
	b := newBroker(t)
	c := b.dial()
	c.identify(`{"extend_support":true}`)
	c.subscribe("t", "ch", "9")
	p := b.dial()
	p.send("PUB_TRACE t\n" + sized(tracedBody(7, "one")))
	p.response(tracedAnswer(0, 7, 3))
	p.send("PUB_EXT t\n" + sized(ext(`{"##trace_id":"8"}`, "four")))
	p.response(tracedAnswer(1, 8, 4))
	p.send("MPUB_TRACE t\n" + multi(tracedBody(9, "a"), tracedBody(0, "bc")))
	p.response(tracedAnswer(2, 0, 3))
	p.send("MPUB_EXT t\n" + multi(ext(`{"##key":"k","a":1}`, "d"), ext(`{"##key":"k"}`, "e")))
	p.response("OK")
	for _, want := range []struct{ header, body string }{
		{`{"##trace_id":"7"}`, "one"}, {`{"##trace_id":"8"}`, "four"}, {`{"##trace_id":"9"}`, "a"}, {"", "bc"},
		{`{"##key":"k","a":1}`, "d"}, {`{"##key":"k"}`, "e"},
	} {
		raw := c.message().body
		if want.header == "" {
			require.Equal(t, "\x00"+want.body, raw)
			continue
		}
		n := int(binary.BigEndian.Uint16([]byte(raw[1:])))
		require.Equal(t, want.header, raw[3:3+n])
		require.Equal(t, want.body, raw[3+n:])
	}
	stock := b.dial()
	stock.subscribe("t", "stock", "1")
	p.send("PUB_TRACE t\n" + sized(tracedBody(7, "one")))
	p.response(tracedAnswer(6, 7, 3))
	require.Equal(t, "one", stock.message().body)

	b.cluster.FailPuts(outcome.ErrNoLeader)
	p.send("PUB_TRACE t\n" + sized(tracedBody(7, "one")))
	p.error("E_PUB_FAILED PUB failed no leader, not stored")
}

func TestAdvancedSubscriptions(t *testing.T) {
	for params, want := range map[string]api.SubscribeRequest{
		"":                        {Partition: -1},
		" 3":                      {Partition: 3},
		" timestamp:1700000000":   {Partition: -1, From: "2023-11-14T22:13:20Z", Reposition: true},
		" 3 timestamp:1700000000": {Partition: 3, From: "2023-11-14T22:13:20Z", Reposition: true},
		" msgcount:12":            {Partition: -1, From: "12", Reposition: true},
		" 0 special:-1":           {Partition: 0, From: "latest", Reposition: true},
	} {
		asked := &asking{}
		b := newBroker(t, func(s *setup) { asked.Subscribers, s.backend.Subscribers = s.backend.Subscribers, asked })
		c := b.dial()
		c.send("SUB_ADVANCED t ch" + params + "\nRDY 1\n")
		c.response("OK")
		require.Equal(t, want, api.SubscribeRequest{Partition: asked.last.Partition, From: asked.last.From, Reposition: asked.last.Reposition})
		p := b.dial()
		p.publish("t", "body")
		raw := []byte(c.message().body)
		require.EqualValues(t, 4, binary.BigEndian.Uint32(raw[8:]), "the body's size")
		require.Equal(t, "body", string(raw[12:]))
	}
}

// asking records the last subscription.
type asking struct {
	api.Subscribers
	last api.SubscribeRequest
	err  error // if not nil, the answer
}

func (a *asking) Subscribe(ctx context.Context, r api.SubscribeRequest) (api.Subscription, error) {
	if a.last = r; a.err != nil {
		return nil, a.err
	}
	return a.Subscribers.Subscribe(ctx, r)
}

func TestBadExtendedCommands(t *testing.T) {
	for command, want := range map[string]string{
		"PUB_EXT t\n" + sized(ext("[1]", "b")):                                       "E_INVALID_JSON_HEADER PUB_EXT header is not a JSON object",
		"PUB_EXT t\n" + sized(ext("null", "b")):                                      "E_INVALID_JSON_HEADER PUB_EXT header is not a JSON object",
		"PUB_EXT t\n" + sized(ext(`{"##trace_id":1}`, "b")):                          "INVALID_TRACE_ID PUB_EXT ##trace_id must be a decimal in a string",
		"PUB_EXT t\n" + sized(ext(`{"##epoch":9}`, "b")):                             "E_INVALID_JSON_HEADER PUB_EXT invalid argument: the header ##epoch is reserved",
		"PUB_EXT t\n" + sized(ext(`{"##priority":9}`, "b")):                          "E_INVALID_JSON_HEADER PUB_EXT invalid argument: the header ##priority is reserved",
		"PUB_EXT t\n" + sized(ext(`{"##ONLY_channel":"ch"}`, "b")):                   "E_INVALID_JSON_HEADER PUB_EXT invalid argument: the header ##ONLY_channel is reserved",
		"PUB_EXT t\n" + sized(ext(`{"":"x"}`, "b")):                                  "E_INVALID_JSON_HEADER PUB_EXT invalid argument: the name of a header is empty",
		"MPUB_EXT t\n" + multi(ext(`{}`, "b"), ext("{\"a\":\"\xff\"}", "b")):         "E_INVALID_JSON_HEADER MPUB_EXT header is not a JSON object",
		"PUB_EXT t\n" + sized(ext(`{"##key":7}`, "b")):                               "E_INVALID_JSON_HEADER PUB_EXT ##key must be a string",
		"MPUB_EXT t\n" + multi(ext(`{"##key":null}`, "b")):                           "E_INVALID_JSON_HEADER MPUB_EXT ##key must be a string",
		"PUB_EXT t\n" + sized(ext(`{"##only_channel":1}`, "b")):                      "E_INVALID_JSON_HEADER PUB_EXT ##only_channel must be a string",
		"PUB_EXT t\n" + sized(ext(`{"##ttl_ms":"5"}`, "b")):                          "E_INVALID_JSON_HEADER PUB_EXT ##ttl_ms must be a number of milliseconds, 1 to 4398046511104",
		"PUB_EXT t\n" + sized(ext(`{"##ttl_ms":0}`, "b")):                            "E_INVALID_JSON_HEADER PUB_EXT ##ttl_ms must be a number of milliseconds, 1 to 4398046511104",
		"PUB_EXT t\n" + sized(ext(`{"##ttl_ms":1.5}`, "b")):                          "E_INVALID_JSON_HEADER PUB_EXT ##ttl_ms must be a number of milliseconds, 1 to 4398046511104",
		"PUB_EXT t\n" + sized(ext(`{"##ttl_ms":1e99}`, "b")):                         "E_INVALID_JSON_HEADER PUB_EXT ##ttl_ms must be a number of milliseconds, 1 to 4398046511104",
		"PUB_EXT t x\n" + sized(ext("{}", "b")):                                      "E_BAD_PARTITION PUB_EXT partition \"x\" is not valid",
		"PUB_TRACE t 1024\n" + sized(tracedBody(1, "b")):                             "E_BAD_PARTITION PUB_TRACE partition \"1024\" is not valid",
		"MPUB_EXT t -2\n" + multi(ext("{}", "b")):                                    "E_BAD_PARTITION MPUB_EXT partition \"-2\" is not valid",
		"PUB_TRACE t\n" + sized("12345678"):                                          "E_BAD_MESSAGE PUB_TRACE no body after the trace id",
		"MPUB_TRACE t\n" + multi(tracedBody(1, "x"), "1"):                            "E_BAD_MESSAGE MPUB_TRACE no body after the trace id",
		"MPUB_EXT t\n" + multi(ext(`{"##key":"a"}`, "x"), ext(`{"##key":"b"}`, "x")): "E_INVALID_JSON_HEADER MPUB_EXT messages of one put must have the same ##key",
		"SUB_ADVANCED t ch virtual_queue:35\n":                                       "E_INVALID SUB_ADVANCED virtual_queue is not supported: use msgcount or timestamp",
		"SUB_ADVANCED t ch timestamp:1764300000000\n":                                "E_INVALID SUB_ADVANCED consume start \"timestamp:1764300000000\" is not valid: a timestamp is in seconds",
		"SUB_ADVANCED t ch msgcount:-2\n":                                            "E_INVALID SUB_ADVANCED consume start \"msgcount:-2\" is not valid",
		"SUB_ADVANCED t ch x special:-1\n":                                           "E_BAD_PARTITION SUB_ADVANCED partition \"x\" is not valid",
		"SUB_ADVANCED t ch \n":                                                       "E_BAD_PARTITION SUB_ADVANCED partition \"\" is not valid",
		"SUB_ADVANCED t ch 18446744073709551616\n":                                   "E_BAD_PARTITION SUB_ADVANCED partition \"18446744073709551616\" is not valid",
		"SUB_ADVANCED t ch 1024\n":                                                   "E_BAD_PARTITION SUB_ADVANCED partition \"1024\" is not valid",
		"SUB_ADVANCED t ch 1 latest\n":                                               "E_INVALID SUB_ADVANCED consume start \"latest\" is not valid",
		"SUB_ADVANCED t ch 1 2 special:-1\n":                                         "E_INVALID SUB_ADVANCED consume start \"2\" is not valid",
		"SUB_ORDERED t ch \n":                                                        "E_BAD_PARTITION SUB_ORDERED partition \"\" is not valid",
		"SUB_ADVANCED t\n":                                                           "E_INVALID SUB_ADVANCED insufficient number of parameters",
		"PUB_EXT t\n" + sized("\xff\xff{}"):                                          "E_BAD_MESSAGE PUB_EXT header does not fit the message of 4 bytes",
		"PUB_EXT t\n" + sized(ext("{}", "")):                                         "E_BAD_MESSAGE PUB_EXT header does not fit the message of 4 bytes",
		"PUB_EXT\n":                                                                  "E_INVALID PUB_EXT insufficient number of parameters",
		"SUB_ORDERED t ch x\n":                                                       "E_BAD_PARTITION SUB_ORDERED partition \"x\" is not valid",
		"SUB_ORDERED t\n":                                                            "E_INVALID SUB_ORDERED insufficient number of parameters",
		"SUB_ORDERED t ch:bad\n":                                                     "E_BAD_CHANNEL SUB_ORDERED channel name \"ch:bad\" is not valid",
	} {
		c := newBroker(t).dial()
		c.send(command)
		c.fatal(want)
	}
}

// TestPutsNameAPartition: clients of the fork name the partition of a put, or -1. Stock commands ignore a parameter that is no
// number, as stock NSQ does.
func TestPutsNameAPartition(t *testing.T) {
	b := newBroker(t)
	p := b.dial()
	sequence := uint64(0)
	ok := func(command string, messages int) {
		p.send(command)
		p.response("OK")
		sequence += uint64(messages)
	}
	for _, partition := range []string{"", " 0", " -1", " default"} {
		ok("PUB t"+partition+"\n"+sized("b"), 1)
		ok("MPUB t"+partition+"\n"+multi("b", "c"), 2)
	}
	for _, partition := range []string{"", " 0", " -1"} {
		ok("PUB_EXT t"+partition+"\n"+sized(ext("{}", "b")), 1)
		ok("MPUB_EXT t"+partition+"\n"+multi(ext("{}", "b")), 1)
		p.send("PUB_TRACE t" + partition + "\n" + sized(tracedBody(7, "one")))
		p.response(tracedAnswer(sequence, 7, 3))
		sequence++
	}
	for _, command := range []string{"PUB t 1\n" + sized("b"), "PUB_EXT t 1\n" + sized(ext("{}", "b")), "PUB_TRACE t 1\n" + sized(tracedBody(7, "one"))} {
		p.send(command)
		p.error("E_TOPIC_NOT_EXIST PUB failed invalid argument: the topic has no partition 1, but 0 to 0, not stored")
	}
	ok("PUB t\n"+sized("b")+"PUB t 0\n"+sized("b")+"PUB t\n"+sized("b"), 1)
	p.response("OK")
	p.response("OK")
}

// TestPartitionThatIsNotThere: a client of the fork asks for the leaders again at E_TOPIC_NOT_EXIST, and leaves the
// partition alone. At another code it comes back forever.
func TestPartitionThatIsNotThere(t *testing.T) {
	missing := fmt.Errorf("%w 9, but 0 to 0", outcome.ErrPartitionNotFound)
	b := newBroker(t, func(s *setup) { s.backend.Subscribers = &asking{Subscribers: s.backend.Subscribers, err: missing} })
	for _, command := range []string{"SUB t ch 9", "SUB_ADVANCED t ch 9", "SUB_ORDERED t ch 9"} {
		c := b.dial()
		c.send(command + "\n")
		c.fatal("E_TOPIC_NOT_EXIST SUB failed invalid argument: the topic has no partition 9, but 0 to 0")
	}
	c := b.dial()
	for command, verb := range map[string]string{
		"PUB t 9\n" + sized("b"): "PUB", "PUB_EXT t 9\n" + sized(ext("{}", "b")): "PUB", "PUB_TRACE t 9\n" + sized(tracedBody(1, "b")): "PUB", "MPUB t 9\n" + multi("b"): "MPUB",
	} {
		c.send(command)
		c.error("E_TOPIC_NOT_EXIST " + verb + " failed invalid argument: the topic has no partition 9, but 0 to 0, not stored")
	}
}

// TestSubscriptionsNameAPartition: SUB, SUB_ADVANCED and SUB_ORDERED with a partition, and with -1.
func TestSubscriptionsNameAPartition(t *testing.T) {
	for command, want := range map[string]int{
		"SUB t ch": -1, "SUB t ch 3": 3, "SUB t ch -1": -1, "SUB t ch x": -1, "SUB_ADVANCED t ch -1": -1, "SUB_ADVANCED t ch 2": 2, "SUB_ORDERED t ch 1": 1, "SUB_ORDERED t ch -1": -1,
	} {
		asked := &asking{}
		b := newBroker(t, func(s *setup) { asked.Subscribers, s.backend.Subscribers = s.backend.Subscribers, asked })
		c := b.dial()
		c.send(command + "\n")
		c.response("OK")
		require.Equal(t, want, asked.last.Partition, command)
	}
}
