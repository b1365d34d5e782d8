package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Records adds the message records of an append (package msgstream). special: a header may have a field that begins with
// ##, or a message waits longer than Options.DeliverAt. Errors: those of the package, api.ErrInvalid.
func Records(body io.Reader, draft *queue.DraftBuilder, o MPubOptions) (special bool, err error) {
	limited := &io.LimitedReader{R: body, N: o.MaxBodySize + 1}
	in := msgstream.NewMessageReader(limited)
	for {
		x, err := in.Next()
		var damage *msgstream.Damage
		switch {
		case err != nil && limited.N == 0: // the end is that of the limit
			return false, ErrBodyTooBig
		case errors.Is(err, io.EOF) && draft.Count() == 0:
			return false, ErrEmpty
		case errors.Is(err, io.EOF):
			return special, nil
		case errors.As(err, &damage):
			return false, fmt.Errorf("%w: %w", api.ErrInvalid, damage)
		case err != nil:
			return false, ErrRead
		}
		m := x.Message
		special = special || m.DeliverAtNS > o.DeliverAt || bytes.Contains(m.Header, []byte("##")) || bytes.Contains(m.Header, []byte(`\u`)) // an escaped # counts, too
		switch {
		case int64(len(m.Body)) > o.MaxMsgSize:
			return false, ErrMsgTooBig
		case draft.Size()+len(m.Header)+len(m.Body) > MaxDraft:
			return false, ErrBodyTooBig
		}
		message := queue.Message{DeliverAt: m.DeliverAtNS, Trace: m.Trace, Header: m.Header, Body: m.Body}
		if draft.Count() == 0 {
			message.Identity, message.IsPutIdentity = identityOfCopy(m.Header)
		}
		if err := draft.AddMessage(message); err != nil {
			return false, fmt.Errorf("%w: %w", api.ErrInvalid, err)
		}
	}
}

// identityOfCopy is the identity of a put that begins with the copy of a message; false if the header
// names no origin.
func identityOfCopy(header []byte) (queue.Identity, bool) {
	o, ok := msgstream.OriginOf(header)
	if !ok {
		return queue.Identity{}, false
	}
	return queue.IdentityOfCopy(queue.CopyOrigin, queue.Source{
		Topic: o.TopicID, Partition: o.Partition, Sequence: ident.Sequence(o.Sequence), Channel: o.Channel, TimeNS: o.TimeNS,
	}), true
}
