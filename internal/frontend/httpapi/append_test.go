package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	settings "github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// appendBody is the body of an append with these messages.
func appendBody(t *testing.T, messages ...msgstream.Message) string {
	var b []byte
	crc, err := uint32(0), error(nil)
	for i := range messages {
		b, crc, err = msgstream.AppendMessage(b, crc, &messages[i])
		require.NoError(t, err)
	}
	return string(b)
}

func TestAppend(t *testing.T) {
	s := newSite(t)
	good := appendBody(t, msgstream.Message{Sequence: 70, Trace: 5, Header: []byte(`{"##origin":"east:1:0:70"}`), Body: []byte("one")}, msgstream.Message{Sequence: 71, Body: []byte("two")})
	const to = "POST /v1/topic/append?topic=t&partition=0"
	s.expect(s.nsqd, to, good, message(404, "TOPIC_NOT_FOUND"))
	s.expect(s.nsqd, "POST /topic/create?topic=t", "", "200")
	sub, err := s.cluster.Subscribe(t.Context(), api.SubscribeRequest{Topic: "t", Channel: "c", Partition: -1, MsgTimeoutMS: 60_000})
	require.NoError(t, err)
	defer sub.Close(true)

	s.expect(s.nsqd, to, good, `200 {"partition":0,"sequence":0,"count":2}`)
	s.expect(s.nsqd, to, good, `200 {"partition":0,"sequence":0,"count":2,"duplicate":true}`)
	s.expect(s.nsqd, to+"&topic_id="+edgetest.TopicID.String(), good, `200 {"partition":0,"sequence":0,"count":2,"duplicate":true}`)
	one := appendBody(t, msgstream.Message{Sequence: 70, Header: []byte(`{"##origin":"east:1:0:70"}`), Body: []byte("one")})
	s.expect(s.nsqd, to, one, `200 {"partition":0,"sequence":0,"count":1,"duplicate":true}`) // its first message counts
	for i, other := range []string{"west:1:0:71", "east:2:0:70", "east:1:1:70", "east:1:0:70@c"} {
		body := appendBody(t, msgstream.Message{Header: []byte(`{"##origin":"` + other + `"}`), Body: []byte("another")})
		s.expect(s.nsqd, to, body, fmt.Sprintf(`200 {"partition":0,"sequence":%d,"count":1}`, i+2))
	}
	got := sub.Pull(9, nil)
	require.Len(t, got, 6)
	require.Equal(t, `{"##origin":"east:1:0:70"}`, string(got[0].Message.Header))
	require.EqualValues(t, 5, got[0].Message.Trace)
	require.Equal(t, "two", string(got[1].Message.Body))

	for request, want := range map[string]string{
		"POST /v1/topic/append?topic=t":                                       message(400, "INVALID_ARG_PARTITION"),
		"POST /v1/topic/append?topic=t&partition=-1":                          message(400, "INVALID_ARG_PARTITION"),
		"POST /v1/topic/append?topic=t&partition=1":                           message(400, "invalid argument: the topic has no partition 1, but 0 to 0, not stored"),
		"POST /v1/topic/append?topic=t&partition=0&key=k":                     message(400, `invalid argument: there is no argument \"key\", but: topic, topic_id, partition`),
		"POST /v1/topic/append?topic=t&partition=0&topic_id=0000000000000008": message(404, "TOPIC_NOT_FOUND"), // another one of the name
		"POST /v1/topic/append?topic=t&partition=0&topic_id=x":                message(400, "INVALID_ARG_TOPIC_ID"),
		"POST /v1/topic/append?partition=0":                                   message(400, "MISSING_ARG_TOPIC"),
		"POST /v1/topic/append?topic=t%20t&partition=0":                       message(400, "INVALID_TOPIC"),
		"GET /v1/topic/append?topic=t&partition=0":                            message(405, "METHOD_NOT_ALLOWED"),
	} {
		s.expect(s.nsqd, request, good, want)
	}
	s.expect(s.nsqd, to, "", message(400, "MSG_EMPTY"))
	require.Equal(t, http.StatusBadRequest, do(s.nsqd, "POST", "/v1/topic/append?topic=t&partition=0", good[:len(good)-1]).StatusCode, "torn: nothing is stored")
	altered := []byte(good)
	altered[len(altered)-6] ^= 1
	require.Equal(t, http.StatusBadRequest, do(s.nsqd, "POST", "/v1/topic/append?topic=t&partition=0", string(altered)).StatusCode)
	s.expect(s.nsqd, to, appendBody(t, msgstream.Message{Body: make([]byte, 101)}), message(413, "MSG_TOO_BIG"))
	require.Empty(t, sub.Pull(9, nil))

	s.cluster.FailPuts(outcome.ErrInDoubt)
	s.expect(s.nsqd, to, good, message(504, "in doubt, may be stored"))
}

// TestAppendTakesTheLargestMessage: with the longest header, although the body is then above --max-body-size.
func TestAppendTakesTheLargestMessage(t *testing.T) {
	const most = 1 << 20
	s := newSite(t)
	h := httpapi.NSQD(httpapi.Options{InfoReply: httpapi.InfoReply{Version: "1.3.0"}, Messages: settings.Messages{MaxMsgSize: most, MaxBodySize: most + 64, MaxDeferTimeout: time.Hour}},
		httpapi.Backend{Admin: s.cluster, Directory: s.cluster.Directory(), Publisher: s.cluster})
	s.expect(h, "POST /topic/create?topic=t", "", "200")
	m := msgstream.Message{Header: []byte(`{"h":"` + strings.Repeat("h", queue.MaxMessageHeader-8) + `"}`), Body: make([]byte, most)}
	require.Len(t, m.Header, queue.MaxMessageHeader)
	const to = "POST /v1/topic/append?topic=t&partition=0"
	s.expect(h, to, appendBody(t, m), `200 {"partition":0,"sequence":0,"count":1}`)
	m.Body = make([]byte, most+1)
	s.expect(h, to, appendBody(t, m), message(413, "BODY_TOO_BIG"))
	m.Header = nil
	s.expect(h, to, appendBody(t, m), message(413, "MSG_TOO_BIG"))
}
