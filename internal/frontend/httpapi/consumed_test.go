package httpapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi/consume"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestTheFirstFormThatThereIs: weights do not count.
func TestTheFirstFormThatThereIs(t *testing.T) {
	for accept, want := range map[string]string{
		"": mediaJSON, "*/*": mediaJSON, "text/html, application/*;q=0.1": mediaJSON, "multipart/*, application/json": mediaMixed,
		"text/event-stream": mediaEvents, "text/html": "",
	} {
		h := http.Header{}
		if accept != "" {
			h.Set("Accept", accept)
		}
		got, ok := accepted(h)
		require.Equal(t, want, got, accept)
		require.Equal(t, want != "", ok)
	}
}

// batch polls a text, bytes that are no text, and adds a late refusal.
func batch(t *testing.T) *consume.Batch {
	cluster := edgetest.New()
	t.Cleanup(cluster.Close)
	sessions := consume.New(consume.Options{}, cluster, nil)
	t.Cleanup(sessions.Stop)
	d := queue.NewDraft(0)
	require.NoError(t, d.AddMessage(queue.Message{Body: []byte("text"), Header: []byte("{\"a\":\n\"b\"}")}))
	require.NoError(t, d.AddMessage(queue.Message{Body: []byte("\xff"), Header: []byte("no JSON")}))
	stored := make(recordedAnswer, 1)
	cluster.Publish("t", api.AnyPartition, nil, d.Draft(ident.RequestID{}), stored)
	require.NoError(t, (<-stored).Err)
	b, err := sessions.Poll(t.Context(), consume.Request{Topic: "t", Channel: "c", MsgTimeout: time.Minute, MaxInFlight: 2}, 2, 0)
	require.NoError(t, err)
	t.Cleanup(func() { b.Close(true) })
	require.Len(t, b.Deliveries, 2)
	b.Refused = []api.Refusal{{ID: b.Deliveries[0].ID, Verb: "FIN", Err: outcome.ErrNotInFlight}}
	return b
}

type recordedAnswer chan api.PutResult

func (a recordedAnswer) Answer(r api.PutResult) { a <- r }

// TestEachFormHasTheSame: messages with their headers, and refusals.
func TestEachFormHasTheSame(t *testing.T) {
	polled := batch(t)
	var b bytes.Buffer
	require.NoError(t, writeList(bufio.NewWriter(&b), polled, false))
	var list struct {
		Messages []received
		Refused  []refusal
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &list), b.String())
	require.Len(t, list.Messages, 2)
	require.Equal(t, "text", *list.Messages[0].Body)
	require.JSONEq(t, `{"a":"b"}`, string(list.Messages[0].Header))
	require.Nil(t, list.Messages[1].Body)
	require.Equal(t, []byte{0xff}, list.Messages[1].Bytes)
	require.Nil(t, list.Messages[1].Header)
	require.Equal(t, "finish", list.Refused[0].Verb)

	b.Reset()
	require.NoError(t, writeList(bufio.NewWriter(&b), polled, true))
	require.NotContains(t, b.String(), `"body":`, "base64 is requested")

	b.Reset()
	h := http.Header{}
	require.NoError(t, writeParts(h, &b, polled))
	_, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	require.NoError(t, err)
	parts := multipart.NewReader(&b, params["boundary"])
	for _, want := range []string{"text", "\xff"} {
		p, err := parts.NextPart()
		require.NoError(t, err)
		body, err := io.ReadAll(p)
		require.NoError(t, err)
		require.Equal(t, want, string(body))
	}
	p, err := parts.NextPart()
	require.NoError(t, err)
	require.Equal(t, "1", p.Header.Get("X-Nsq-Refused"))

	b.Reset()
	require.NoError(t, writeEvents(&b, nil, false))
	require.Equal(t, ": alive\n\n", b.String())
	require.NoError(t, writeEvents(&b, polled, false))
	require.NoError(t, writeEnd(&b, "over"))
	require.Equal(t, 2, bytes.Count(b.Bytes(), []byte("event: message\nid: ")))
	require.Contains(t, b.String(), "event: refused\ndata: {")
	require.Contains(t, b.String(), "event: end\ndata: {\"message\":\"over\"}\n\n")
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }

// TestAnErrorOfTheWriterIsReturned: the caller gives the messages back.
func TestAnErrorOfTheWriterIsReturned(t *testing.T) {
	polled := batch(t)
	require.Error(t, writeList(bufio.NewWriter(broken{}), polled, false))
	require.Error(t, writeParts(http.Header{}, broken{}, polled))
	require.Error(t, writeEvents(broken{}, polled, false))
}
