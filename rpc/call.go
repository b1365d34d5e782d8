package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// callTimeout bounds a call whose context has no deadline.
const callTimeout = 10 * time.Second

// windowPause separates attempts to queue a response.
const windowPause = 5 * time.Millisecond

// The headers of a call. On the wire, by position: append only.
type (
	requestHeader struct {
		ID     uint64
		Method string
		WaitMS int64 // how long the caller will wait
	}
	responseHeader struct {
		ID    uint64
		Error Error // code 0 = none
	}
)

// calls are the requests of one connection that wait for their response.
type calls struct {
	mu struct {
		sync.Mutex
		last    uint64
		waiting map[uint64]chan response
	}
}

type response struct {
	header  responseHeader
	payload []byte
}

// open registers a call. The channel has room for the response, so delivering it does not block.
func (c *calls) open() (uint64, chan response) {
	ch := make(chan response, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.waiting == nil {
		c.mu.waiting = map[uint64]chan response{}
	}
	c.mu.last++
	c.mu.waiting[c.mu.last] = ch
	return c.mu.last, ch
}

// forget ends a call. A later response to it is dropped.
func (c *calls) forget(id uint64) chan response {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.mu.waiting[id]
	delete(c.mu.waiting, id)
	return ch
}

// complete passes a response to its caller, if the call is still waiting.
func (c *calls) complete(a arrival) error {
	r := response{payload: a.payload}
	if err := Unmarshal(a.header, &r.header); err != nil {
		return malformed("response: %v", err)
	}
	if ch := c.forget(r.header.ID); ch != nil {
		ch <- r
	}
	return nil
}

// Call makes a call to another broker and decodes its answer into resp (a pointer; nil = not needed). Calls overlap and
// their answers arrive in any order. Errors: ErrDown and ErrWindow (nothing was sent), ErrBroken or the error of ctx
// (in doubt), or the error of the peer's Serve, as an *Error.
func (t *Transport) Call(ctx context.Context, to ident.Node, method string, req, resp any) error {
	if err := t.call(ctx, to, method, req, resp); err != nil {
		return fmt.Errorf("rpc: call %s on %s: %w", method, to, err)
	}
	return nil
}

func (t *Transport) call(ctx context.Context, to ident.Node, method string, req, resp any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c := t.sender(to)
	if c == nil {
		return ErrDown
	}
	limits := t.o.Limits(method)
	id, ch := c.calls.open()
	defer c.calls.forget(id)
	deadline, _ := ctx.Deadline()
	header := requestHeader{id, method, max(1, time.Until(deadline).Milliseconds())}
	if err := c.sendMessage(kindRequest, header, req, limits.Request); err != nil {
		return err
	}
	r, err := c.await(ctx, ch)
	if err != nil {
		return err
	}
	if err := r.header.Error.Err(); err != nil {
		return err
	}
	if resp == nil {
		return nil
	}
	if len(r.payload) > limits.Response { // checked first, because decoded it could take several times the memory
		return fmt.Errorf("%w: response of %d bytes, at most %d are allowed", errTooLarge, len(r.payload), limits.Response)
	}
	return Unmarshal(r.payload, resp)
}

// await prefers a response that has arrived over any reason to give up.
func (c *conn) await(ctx context.Context, ch chan response) (response, error) {
	var err error
	select {
	case r := <-ch:
		return r, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.done:
		err = fmt.Errorf("%w: %v", ErrBroken, c.cause)
	}
	select {
	case r := <-ch:
		return r, nil
	default:
		return response{}, err
	}
}

// bound is frameReader.bound of a connection. A request beyond the limit of its method ends the
// connection, because a correct sender refuses to send it. Responses are limited before they are decoded.
func (c *conn) bound(k kind, header []byte, whole int) error {
	if k != kindRequest {
		return nil
	}
	var q requestHeader
	if err := Unmarshal(header, &q); err != nil {
		return malformed("request: %v", err)
	}
	if limit := c.t.o.Limits(q.Method).Request; whole > limit {
		return malformed("request %q of %d bytes, at most %d are allowed", clip(q.Method), whole, limit)
	}
	return nil
}

// sendMessage queues a request or a response: header and body, both encoded. A body of more
// than limit bytes is errTooLarge.
func (c *conn) sendMessage(k kind, header, body any, limit int) error {
	payload, err := Marshal(body)
	if err != nil {
		return err
	}
	if len(payload) > limit {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", errTooLarge, len(payload), limit)
	}
	f := newOutFrame(k, ClassControl, [][]byte{payload})
	if f.header, err = appendMarshal(f.header, header); err != nil {
		f.free()
		return err
	}
	return c.out.push(f)
}

// admit starts serving a request, or answers ErrBusy when too many are being served.
func (c *conn) admit(ctx context.Context, a arrival, own *sync.WaitGroup) error {
	var q requestHeader
	if err := Unmarshal(a.header, &q); err != nil {
		return malformed("request: %v", err)
	}
	refused := outcome.ErrBusy
	if limit := c.t.o.Limits(q.Method).Request; len(a.payload) > limit {
		refused = fmt.Errorf("%w: request of %d bytes, at most %d are allowed", errTooLarge, len(a.payload), limit)
	} else {
		select {
		case c.slots <- struct{}{}:
			refused = nil
		default:
		}
	}
	if refused != nil {
		if err := c.respond(q, nil, refused); !errors.Is(err, ErrWindow) {
			return err
		}
		return nil // the peer does not read its responses, so its call times out
	}
	own.Go(func() {
		defer func() { <-c.slots }()
		if err := c.serve(ctx, q, a.payload); err != nil {
			c.close(err)
		}
	})
	return nil
}

// serve answers one request. Started by admit, ends with the handler's answer. Its error ends the connection.
func (c *conn) serve(ctx context.Context, q requestHeader, req []byte) error {
	wait := min(max(q.WaitMS, 1), callTimeout.Milliseconds())
	ctx, cancel := context.WithTimeout(ctx, time.Duration(wait)*time.Millisecond)
	defer cancel()
	resp, failure := c.t.o.Handler.Serve(ctx, c.peer.Node, q.Method, req)
	for {
		err := c.respond(q, resp, failure)
		if !errors.Is(err, ErrWindow) {
			return err
		}
		if !concurrency.Sleep(ctx, windowPause) { // the caller has given up
			return nil
		}
	}
}

// respond queues a response.
func (c *conn) respond(q requestHeader, resp any, failure error) error {
	if failure == nil {
		err := c.sendMessage(kindResponse, responseHeader{ID: q.ID}, resp, c.t.o.Limits(q.Method).Response)
		if ClassOf(err) != outcome.ClassDefinite && ClassOf(err) != outcome.ClassInDoubt {
			return err
		}
		failure = err // too large or not encodable: the caller gets the error
	}
	return c.sendMessage(kindResponse, responseHeader{q.ID, *fromError(failure)}, nil, MaxPayload)
}
