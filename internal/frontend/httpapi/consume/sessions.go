package consume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

const (
	// lingerTime is how long a session keeps its credit after a poll, so that a client that polls again at once finds
	// messages here.
	lingerTime = 50 * time.Millisecond
	// minWait is the shortest wait of a poll: a leader on another broker sends messages only after it has received the
	// credit.
	minWait = 250 * time.Millisecond
	// gatherTime is how long a poll waits for more messages after its first ones, at most a quarter of their timeout.
	gatherTime = 2 * time.Millisecond
	// minLifetime is the shortest lifetime of a session without polls.
	minLifetime = time.Second
	// answerBytes ends the gathering of messages for one answer.
	answerBytes = 1 << 20
)

// ErrBusy means that unread messages use up all the memory of the client.
var ErrBusy = errors.New("the memory for messages that this client has not read is used up: read the other answers and streams to their end")

// Options are the limits of sessions.
type Options struct {
	// MaxSessions bounds the sessions of all clients, MaxPerClient the sessions of one network or of one user; 0 = no
	// limit. A session outlives its polls, so one connection could otherwise open all of them.
	MaxSessions, MaxPerClient int
	// Memory bounds the messages that wait for clients, or are being written; nil = no limit.
	Memory *limits.Budget
	// RequeueOnDisconnect requeues the messages of an answer that cannot be written, and those in flight of a stream
	// whose client disconnects.
	RequeueOnDisconnect bool
	Metrics             *metrics.Recorder // nil = nothing is recorded
}

// client identifies a client: all polls of one client on one channel share a session.
type client struct {
	Identity string // of the user; "" without users
	Host     string // address without the port
	Name     string // ?client=, for several clients of one address
	Network  string // the network to which the limit per address applies
}

// Request is what a poll or a stream subscribes to. Polls with equal fields up to MsgTimeout share a session.
type Request struct {
	Client         client
	Topic, Channel string
	MsgTimeout     time.Duration
	// MaxInFlight bounds the messages in flight of the session.
	MaxInFlight int
	// About describes the client for /stats: address, user agent, TLS.
	About api.ClientStats
}

type key struct {
	client         client
	topic, channel string
	msgTimeout     time.Duration
}

// Sessions holds all sessions of a broker. Its methods may be called by any goroutine.
type Sessions struct {
	o           Options
	subscribers api.Subscribers
	receipts    api.Receipts    // nil = receipts of other brokers are refused
	ctx         context.Context // ends with Stop
	end         context.CancelFunc

	mu struct {
		sync.Mutex
		shared  map[key]*session // of polls
		all     map[uint64]*session
		clients map[owner]int // sessions by network, and by user
	}
}

// New returns an empty set of sessions.
func New(o Options, subscribers api.Subscribers, receipts api.Receipts) *Sessions {
	s := &Sessions{o: o, subscribers: subscribers, receipts: receipts}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.mu.shared, s.mu.all, s.mu.clients = map[key]*session{}, map[uint64]*session{}, map[owner]int{}
	return s
}

// Stop ends all sessions. Their messages in flight return to their channels, and these deliveries do not count as
// attempts.
func (s *Sessions) Stop() {
	s.end()
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.mu.all))
	s.mu.Unlock()
	for _, x := range all {
		x.finish(func(sub api.Subscription) { sub.Withdraw() })
	}
}

// Count is the number of sessions.
func (s *Sessions) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.all)
}

// Consumers describes the sessions of a channel. Each is a client that consumes by HTTP requests.
func (s *Sessions) Consumers(topic, channel string) (out []api.ConsumerStats) {
	s.mu.Lock()
	var of []*session
	for _, x := range s.mu.all {
		if x.request.Topic == topic && x.request.Channel == channel {
			of = append(of, x)
		}
	}
	s.mu.Unlock()
	for _, x := range of {
		out = append(out, x.consumer())
	}
	return out
}

// Poll takes at most `most` messages. It waits for the first one, and returns an empty batch if none arrives in time.
// The caller closes the batch. Errors: those of api.Subscribers, ErrBusy, and outcome.ErrChannelNotFound if the channel
// is deleted during the wait.
func (s *Sessions) Poll(ctx context.Context, r Request, most int, wait time.Duration) (*Batch, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	timeout := time.NewTimer(max(wait, minWait))
	defer timeout.Stop()
	x, err := s.join(ctx, r)
	if err != nil {
		return nil, s.reason(err)
	}
	defer x.leave()
	b, err := x.poll(ctx, r.MaxInFlight, most, timeout.C)
	return b, s.reason(err)
}

// Stream sends messages as they arrive, until send fails, ctx ends, or the channel is deleted. A nil batch keeps the
// connection alive.
func (s *Sessions) Stream(ctx context.Context, r Request, alive time.Duration, send func(*Batch) error) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	x, err := s.add(key{}, r)
	if err != nil {
		return s.reason(err)
	}
	if x.subscribe(ctx); x.err != nil {
		return s.reason(x.err)
	}
	defer x.finish(func(sub api.Subscription) { sub.Close(s.o.RequeueOnDisconnect) })
	return s.reason(x.stream(ctx, r.MaxInFlight, alive, send))
}

// within returns a context that also ends when Stop is called.
func (s *Sessions) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(s.ctx, cancel)
	return ctx, func() {
		release()
		cancel()
	}
}

// reason replaces the error of a request that Stop has ended.
func (s *Sessions) reason(err error) error {
	if err != nil && s.ctx.Err() != nil {
		return outcome.ErrExiting
	}
	return err
}

// join finds or opens the session of a client, and counts a poll.
func (s *Sessions) join(ctx context.Context, r Request) (*session, error) {
	k := key{client: r.Client, topic: r.Topic, channel: r.Channel, msgTimeout: r.MsgTimeout}
	for {
		s.mu.Lock()
		x := s.mu.shared[k]
		s.mu.Unlock()
		if x == nil {
			var err error
			if x, err = s.add(k, r); err != nil {
				return nil, err
			}
			if x == nil {
				continue // another poll was first
			}
			if x.subscribe(ctx); x.err != nil {
				return nil, x.err
			}
		}
		select {
		case <-x.opened:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if x.err != nil && ctx.Err() == nil && (errors.Is(x.err, context.Canceled) || errors.Is(x.err, context.DeadlineExceeded)) {
			continue // the client that opened it has disconnected
		}
		if x.err != nil {
			return nil, x.err
		}
		if x.enter() {
			return x, nil
		}
		s.remove(x) // the session has ended, and may be about to remove itself
	}
}

// add makes a session that is not open yet. A zero key is not shared. It returns nil if there is a session with that
// key.
func (s *Sessions) add(k key, r Request) (*session, error) {
	x := &session{
		set: s, key: k, request: r, since: time.Now(), opened: make(chan struct{}),
		taking: make(chan struct{}, 1), freed: make(chan struct{}, 1),
	}
	owner := r.Client.Network
	if r.About.Authed {
		owner = r.Client.Identity
	}
	x.memory, x.short = s.o.Memory.Share(owner).Watch()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ctx.Err() != nil:
		return nil, outcome.ErrExiting
	case k != key{} && s.mu.shared[k] != nil:
		return nil, nil
	case s.o.MaxSessions > 0 && len(s.mu.all) >= s.o.MaxSessions:
		return nil, fmt.Errorf("%w: this broker has %d HTTP consumers, as many as it may; try another one", outcome.ErrTooManyClients, len(s.mu.all))
	}
	for _, o := range r.owners() {
		if n := s.mu.clients[o]; s.o.MaxPerClient > 0 && n >= s.o.MaxPerClient {
			return nil, fmt.Errorf("%w: this %s has %d HTTP consumers at this broker, as many as it may", outcome.ErrTooManyClients, o.kind, n)
		}
	}
	for x.number = rand.Uint64(); s.mu.all[x.number] != nil; x.number = rand.Uint64() {
		continue // receipts of an earlier run of this broker must not match this session
	}
	s.mu.all[x.number] = x
	for _, o := range r.owners() {
		s.mu.clients[o]++
	}
	if k != (key{}) {
		s.mu.shared[k] = x
	}
	return x, nil
}

// owner is a network or a user, whose sessions are counted.
type owner struct{ kind, name string }

// owners returns the network of the client, and its user if it has logged in.
func (r Request) owners() []owner {
	owners := []owner{{"address", r.Client.Network}}
	if r.About.Authed {
		owners = append(owners, owner{"user", r.Client.Identity})
	}
	return owners
}

func (s *Sessions) remove(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.all[x.number] != x {
		return
	}
	delete(s.mu.all, x.number)
	if s.mu.shared[x.key] == x {
		delete(s.mu.shared, x.key)
	}
	for _, o := range x.request.owners() {
		if s.mu.clients[o]--; s.mu.clients[o] == 0 {
			delete(s.mu.clients, o)
		}
	}
}

// find returns the session with a number, if it consumes the channel.
func (s *Sessions) find(number uint64, topic, channel string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.mu.all[number]
	if x == nil || x.request.Topic != topic || x.request.Channel != channel {
		return nil
	}
	return x
}

// Settle executes a verb on deliveries of a channel. It returns one error for each receipt, as api.Receipts does.
func (s *Sessions) Settle(ctx context.Context, topic, channel string, do api.Settlement, list []Receipt) []error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	errs := make([]error, len(list))
	var left []int                          // indices of the receipts that the leaders of their messages settle
	sessions := make([]*session, len(list)) // of the receipts
	for i, r := range list {
		if i > 0 && list[i-1].Session == r.Session {
			sessions[i] = sessions[i-1]
		} else {
			sessions[i] = s.find(r.Session, topic, channel)
		}
		errs[i] = outcome.ErrNotInFlight
		if sessions[i] != nil {
			errs[i] = sessions[i].settle(do, r.Receipt)
		}
		if errors.Is(errs[i], outcome.ErrNotInFlight) {
			left = append(left, i)
		}
	}
	if len(left) == 0 || s.receipts == nil {
		return errs
	}
	elsewhere := make([]api.Receipt, len(left))
	for j, i := range left {
		elsewhere[j] = list[i].Receipt
	}
	for j, err := range s.receipts.Settle(ctx, topic, channel, do, elsewhere) {
		if errs[left[j]] = s.reason(err); err == nil && sessions[left[j]] != nil {
			sessions[left[j]].settled(do.Verb, list[left[j]].Receipt.ID)
		}
	}
	return errs
}

// requeue requeues the deliveries of an answer that could not be written. A delivery whose leader does not answer waits
// for its timeout.
func (s *Sessions) requeue(b *Batch) {
	list := make([]Receipt, len(b.Deliveries))
	for i := range list {
		list[i] = b.Receipt(i)
	}
	r := b.session.request
	s.Settle(s.ctx, r.Topic, r.Channel, api.Settlement{Verb: api.VerbRequeue}, list)
}

var errReceipt = errors.New("consume: not a receipt")

// Receipt names a delivery, and the session that received it.
type Receipt struct {
	api.Receipt
	Session uint64
}

const maxReceipt = 16 + 1 + 16 + 1 + 16 + 1 + 16

// String returns the text for clients: message id, number of the delivery, epoch and session, as hexadecimal numbers.
func (r Receipt) String() string {
	b := append(append(make([]byte, 0, maxReceipt), r.ID[:]...), '-')
	b = append(strconv.AppendUint(b, r.Number, 16), '-')
	b = append(strconv.AppendUint(b, uint64(r.Epoch), 16), '-')
	return string(strconv.AppendUint(b, r.Session, 16))
}

// ParseReceipt reads the text of a receipt. It does not check that the delivery exists.
func ParseReceipt(text string) (r Receipt, err error) {
	parts := strings.Split(text, "-")
	if len(text) > maxReceipt || len(parts) != 4 || len(parts[0]) != len(r.ID) {
		return r, errReceipt
	}
	copy(r.ID[:], parts[0])
	var numbers [3]uint64
	for i := range numbers {
		if numbers[i], err = strconv.ParseUint(parts[i+1], 16, 64); err != nil {
			return r, errReceipt
		}
	}
	r.Number, r.Epoch, r.Session = numbers[0], ident.Epoch(numbers[1]), numbers[2]
	if r.String() != text {
		return r, errReceipt // each receipt has exactly one text
	}
	return r, nil
}
