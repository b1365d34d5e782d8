package transfer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	scanPage = 1000 // the number of messages of the target that one request reads
	// retryFirst and retryMost are the pauses between two attempts of a put.
	retryFirst = 50 * time.Millisecond
	retryMost  = 2 * time.Second
	maxHeader  = 1<<16 - 1 // the longest header of a message
)

// copyState is the progress of a partition's copies.
type copyState struct {
	Next     uint64   `json:"next"` // the first message of the source that is not in the target
	End      uint64   `json:"end"`  // after the last message of the target that was read
	Segments segments `json:"segments"`
	Mark     string   `json:"mark,omitempty"` // identifies the source's log up to Next (logPage); "": not known
	Last     *copied  `json:"last,omitempty"` // the newest copy, which a target that went back has lost
}

type copied struct {
	Source uint64 `json:"source"`
	Target uint64 `json:"target"`
	TimeNS int64  `json:"time"` // when the original was published
}

// errWentBack means that the target has lost copies: compare finds what is missing.
var errWentBack = errors.New("the target has lost messages that were copied")

// copier copies one partition. The partition of the target has the same number. One goroutine copies; methods without a
// context may be called by any. All fields but Segments and only are written by the goroutine that copies, which reads them
// without the lock.
type copier struct {
	log    partitionLog     // of the target
	source msgstream.Origin // without a sequence
	report func(line string)

	mu sync.Mutex
	copyState
	high uint64 // above every message of the source that Segments has
	// comparing: Segments has the copies of all histories of the source, with the times of the originals, 8 bytes a
	// copy. Those of the history that the source has now are in matched.
	comparing bool
	matched   segments
	mixed     bool                         // a copy of another history was found, and not compared
	resumed   *copyState                   // known before resume; nil once it was examined
	copies    map[string]map[original]bool // copies for one channel
	only      map[uint64]string            // the same copies by their place in the target: the channel
	doubts    int64                        // puts that were repeated because their fate was unknown
}

type original struct {
	sequence uint64
	timeNS   int64
}

// newCopier returns a copier with a saved state, the zero state at first. source names the cluster, the topic id and the
// partition of the originals. report receives each failed attempt of a put.
func newCopier(to partitionLog, source msgstream.Origin, saved copyState, report func(line string)) *copier {
	return &copier{
		log: to, source: source, report: report, copyState: saved, high: saved.Next, resumed: &saved,
		copies: map[string]map[original]bool{}, only: map[uint64]string{},
	}
}

func (p *copier) state() copyState {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.copyState
	x.Segments = append(segments{}, x.Segments...)
	return x
}

// copierView is a consistent view of a copier for any goroutine.
type copierView struct {
	next             uint64 // the first message of the source that is not in the target
	mark             string // identifies the source's log up to next; "": not known
	doubts           int64  // puts that were repeated although they may be stored; the target recognises them within its dedupe window
	comparing, mixed bool   // a comparison has begun, and is not settled; the target has received copies of another history since
	hasAny           bool   // the target has copies
}

func (p *copier) view() copierView {
	p.mu.Lock()
	defer p.mu.Unlock()
	return copierView{p.Next, p.Mark, p.doubts, p.comparing, p.mixed, p.Next > 0 || p.high > 0}
}

// skipTo leaves out the messages of the source below a sequence. mark identifies the source's log up to there.
func (p *copier) skipTo(next uint64, mark string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next >= p.Next {
		p.Next, p.Mark = next, mark
	}
}

// finished is what a channel of the source has finished in the partition: all messages below Below but those in Except.
type finished struct {
	Below  uint64
	Except []uint64 // sorted
}

// toFinish lists the copies that a channel of the target has to finish as well: from its position on up to
// the first message that is not a copy, and of the delayed messages below it. end is where the list stops.
func (p *copier) toFinish(x api.ChannelPosition, done finished) (spans []api.SequenceSpan, end uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range x.Deferred {
		if d.Attempts > 0 || d.Sequence >= x.Confirmed {
			continue // the channel's own: it has delivered the message
		}
		if i, found := p.Segments.at(uint64(d.Sequence)); found {
			spans = done.add(spans, p.Segments[i].Source+uint64(d.Sequence)-p.Segments[i].Target, uint64(d.Sequence), 1)
		}
	}
	for end = uint64(x.Confirmed); ; {
		if channel, is := p.only[end]; is {
			if channel != x.Channel { // no other channel delivers it
				spans = join(spans, end, end+1)
			}
			end++
			continue
		}
		i, found := p.Segments.at(end)
		if !found {
			return spans, end
		}
		source := p.Segments[i].Source + end - p.Segments[i].Target
		if source >= done.Below {
			return spans, end
		}
		count := min(p.Segments[i].Target+p.Segments[i].Count-end, done.Below-source)
		spans = done.add(spans, source, end, count)
		end += count
	}
}

// add records which copies of a run are finished.
func (d finished) add(spans []api.SequenceSpan, source, target, count uint64) []api.SequenceSpan {
	if source >= d.Below {
		return spans
	}
	count = min(count, d.Below-source)
	at, _ := slices.BinarySearch(d.Except, source)
	for _, not := range d.Except[at:] {
		if not >= source+count {
			break
		}
		n := not - source
		spans = join(spans, target, target+n)
		source, target, count = not+1, target+n+1, count-n-1
	}
	return join(spans, target, target+count)
}

// join appends a span, or makes the last one longer.
func join(spans []api.SequenceSpan, from, to uint64) []api.SequenceSpan {
	if last := len(spans) - 1; last >= 0 && uint64(spans[last].To) == from {
		spans[last].To = ident.Sequence(to)
	} else if from < to {
		spans = append(spans, api.SequenceSpan{From: ident.Sequence(from), To: ident.Sequence(to)})
	}
	return spans
}

// forget drops the copies below a position of the target that no channel needs.
func (p *copier) forget(below uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Segments.below(below)
	maps.DeleteFunc(p.only, func(at uint64, _ string) bool { return at < below })
}

// has reports whether the target has a copy of a message, for one channel alone if named; called in the source's order.
func (p *copier) has(m *msgstream.Message, channel string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hasLocked(m, channel)
}

func (p *copier) hasLocked(m *msgstream.Message, channel string) bool {
	if channel != "" {
		return p.copies[channel][original{m.Sequence, m.TimeNS}]
	}
	if m.Sequence >= p.high {
		return false
	}
	return p.matchLocked(m.Sequence, m.TimeNS)
}

// matchLocked reports whether the target has a copy of a message, which a comparison then counts as found.
func (p *copier) matchLocked(sequence uint64, timeNS int64) bool {
	at, there := p.Segments.match(sequence, timeNS)
	if there && p.comparing {
		p.matched.add(sequence, at)
	}
	return there
}

// resume reads the target's log from the last known place on; errWentBack if the target has lost copies.
func (p *copier) resume(ctx context.Context) error {
	if err := p.verify(ctx); err != nil {
		return err
	}
	return p.scan(ctx, 0)
}

// scan reads the target's log up to a sequence, 0: to its committed end, and notes the copies.
func (p *copier) scan(ctx context.Context, to uint64) error {
	leader, err := p.log.leader(ctx)
	if err != nil {
		return err
	}
	for {
		from := p.End
		page, err := p.log.read(ctx, fmt.Sprint(from), leader, scanPage)
		if err != nil {
			return err
		}
		end := cmp.Or(to, page.End)
		for i := range page.Messages {
			if m := &page.Messages[i]; m.Sequence >= from && m.Sequence < end {
				if err := p.note(ctx, leader, m); err != nil {
					return err
				}
			}
		}
		p.mu.Lock()
		p.End = max(p.End, min(max(page.Next, page.Start), end))
		done := p.End >= end
		p.mu.Unlock()
		if done {
			return nil
		}
		if len(page.Messages) == 0 && page.Next <= from {
			return fmt.Errorf("partition %d of %s ends at %d for the broker that was asked, before message %d", p.log.partition, p.log.topic, page.End, end)
		}
	}
}

func (p *copier) note(ctx context.Context, leader string, m *msgstream.Message) error {
	o, ok := p.originOf(m)
	if !ok {
		return nil
	}
	p.mu.Lock()
	at, known := p.Segments.place(o.Sequence)
	isAgain := !p.comparing && o.Channel == "" && o.Sequence < p.Next
	p.mu.Unlock()
	same := !isAgain
	if isAgain && known { // an earlier put that was late; or the source went back, and its log continued in another way
		var err error
		if same, err = p.isCopy(ctx, leader, at, o); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if same {
		p.noteLocked(o, m.Sequence)
	}
	p.mixed = p.mixed || !same
	return nil
}

// originOf is the origin of a message of the target, if that is of this partition's source.
func (p *copier) originOf(m *msgstream.Message) (o msgstream.Origin, ok bool) {
	o, ok = msgstream.OriginOf(m.Header)
	return o, ok && o.TopicID == p.source.TopicID && int(o.Partition) == p.log.partition
}

// isCopy reports whether a place of the target has a copy of the message of an origin.
func (p *copier) isCopy(ctx context.Context, leader string, at uint64, o msgstream.Origin) (bool, error) {
	m, there, err := p.log.message(ctx, at, leader)
	if err != nil || !there {
		return false, err
	}
	found, ok := p.originOf(&m)
	return ok && found.TimeNS == o.TimeNS, nil
}

func (p *copier) noteLocked(o msgstream.Origin, target uint64) {
	if o.Channel != "" {
		if p.copies[o.Channel] == nil {
			p.copies[o.Channel] = map[original]bool{}
		}
		p.copies[o.Channel][original{o.Sequence, o.TimeNS}] = true
		p.only[target] = o.Channel
		return
	}
	p.high = max(p.high, o.Sequence+1)
	if p.comparing {
		p.Segments.addTimed(o.Sequence, target, o.TimeNS)
		if p.Last == nil || p.Last.Target <= target {
			p.Last = &copied{Source: o.Sequence, Target: target, TimeNS: o.TimeNS}
		}
		return
	}
	p.Segments.add(o.Sequence, target)
	if o.Sequence >= p.Next {
		p.Next, p.Mark = o.Sequence+1, ""
		p.Last = &copied{Source: o.Sequence, Target: target, TimeNS: o.TimeNS}
	}
}

// append copies messages, in their order. If a channel is named, the copies are for that channel alone. It returns when the
// target has committed them. It continues until ctx ends, or the target refuses the messages permanently.
func (p *copier) append(ctx context.Context, messages []msgstream.Message, channel string) error {
	for {
		messages = p.missing(messages, channel) // an earlier, late put may have contained some of them
		if len(messages) == 0 {
			return nil
		}
		earlier, err := p.put(ctx, messages, channel)
		if brokerapi.Status(err) == http.StatusRequestEntityTooLarge && len(messages) > 1 { // the body, or one of them
			if err := p.append(ctx, messages[:len(messages)/2], channel); err != nil {
				return err
			}
			messages = messages[len(messages)/2:]
			continue
		}
		if err != nil || !earlier {
			return err
		}
	}
}

// missing returns the messages without a copy at the target, for one channel alone if it is named.
func (p *copier) missing(messages []msgstream.Message, channel string) []msgstream.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(messages), func(m msgstream.Message) bool { return p.hasLocked(&m, channel) })
}

// put publishes messages. earlier: the target has an earlier put with the same first message, and it was noted.
func (p *copier) put(ctx context.Context, messages []msgstream.Message, channel string) (earlier bool, err error) {
	body, origins, err := p.encode(messages, channel)
	if err != nil {
		return false, err
	}
	pause := retryFirst
	for try := 0; ; try++ {
		stored, err := p.post(ctx, try, body)
		switch {
		case err == nil && stored.Duplicate:
			err := p.scanUntil(ctx, 0)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.noteLocked(origins[0], *stored.Sequence)
			return true, err
		case err == nil:
			return false, p.stored(ctx, *stored.Sequence, origins)
		case ctx.Err() != nil:
			return false, ctx.Err()
		case brokerapi.Refused(err):
			return false, err
		}
		p.report(fmt.Sprintf("topic %s, partition %d: %v; the put is repeated", p.log.topic, p.log.partition, err))
		if !concurrency.Sleep(ctx, pause) {
			return false, ctx.Err()
		}
		pause = min(2*pause, retryMost)
		if inDoubt(err) {
			there, err := p.find(ctx, origins)
			if err != nil || there {
				return false, err
			}
		}
	}
}

func (p *copier) encode(messages []msgstream.Message, channel string) (body []byte, origins []msgstream.Origin, err error) {
	crc := uint32(0)
	for i := range messages {
		m := messages[i]
		o := p.source
		o.Sequence, o.Channel, o.TimeNS = m.Sequence, channel, m.TimeNS
		origins = append(origins, o)
		if header := msgstream.WithOrigin(m.Header, o); len(header) <= maxHeader {
			m.Header = header
		} else if channel != "" {
			return nil, nil, fmt.Errorf("message %d of partition %d: its header of %d bytes leaves no space for the channel", m.Sequence, m.Partition, len(m.Header))
		}
		m.DeferredOnly = false
		if body, crc, err = msgstream.AppendMessage(body, crc, &m); err != nil {
			return nil, nil, fmt.Errorf("message %d of partition %d: %w", m.Sequence, m.Partition, err)
		}
	}
	return body, origins, nil
}

// appended is the answer to a put. Sequence is the sequence of its first message; with Duplicate, of the first message of an
// earlier put, which is the same.
type appended struct {
	Sequence  *uint64 `json:"sequence"`
	Duplicate bool    `json:"duplicate"`
}

func (p *copier) post(ctx context.Context, try int, body []byte) (v appended, err error) {
	c := p.log.client
	address := c.Addresses[(int(p.log.partition)+try)%len(c.Addresses)]
	q := url.Values{"topic": {p.log.topic}, "topic_id": {p.log.id.String()}, "partition": {fmt.Sprint(p.log.partition)}}
	answer, err := c.Send(ctx, address, "/v1/topic/append", q, http.Header{"Content-Type": {msgstream.ContentType}}, body)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(answer, &v); err != nil || v.Sequence == nil {
		return v, fmt.Errorf("%s: this is not the answer of a Lockstep broker", address)
	}
	return v, nil
}

// stored notes a committed put. Unread messages before it come from others, or from an earlier attempt.
func (p *copier) stored(ctx context.Context, first uint64, origins []msgstream.Origin) error {
	if first < p.End { // it has lost messages there
		return errWentBack
	}
	if first > p.End {
		if err := p.scanBeside(ctx, first, origins); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, o := range origins {
		if p.comparing && o.Channel == "" {
			p.matched.add(o.Sequence, first+uint64(i))
			p.Last = &copied{Source: o.Sequence, Target: first + uint64(i), TimeNS: o.TimeNS}
		} else {
			p.noteLocked(o, first+uint64(i))
		}
	}
	p.End = max(p.End, first+uint64(len(origins)))
	return nil
}

func (p *copier) scanUntil(ctx context.Context, to uint64) error {
	return repeat(ctx, retryFirst, p.reportError, func() error { return p.scan(ctx, to) })
}

// scanBeside is scanUntil while a put with these origins is in progress.
func (p *copier) scanBeside(ctx context.Context, to uint64, origins []msgstream.Origin) error {
	if err := p.scanUntil(ctx, to); err != nil {
		return err
	}
	return repeat(ctx, retryFirst, p.reportError, func() error { return p.dropOtherHistory(ctx, origins) })
}

func (p *copier) reportError(err error) { p.report(err.Error()) }

// find reports whether the target has a put whose answer is missing.
func (p *copier) find(ctx context.Context, origins []msgstream.Origin) (bool, error) {
	if err := p.scanBeside(ctx, 0, origins); err != nil {
		return false, err
	}
	last := origins[len(origins)-1]
	p.mu.Lock()
	defer p.mu.Unlock()
	there := p.Next > last.Sequence
	switch {
	case last.Channel != "":
		there = p.copies[last.Channel][original{last.Sequence, last.TimeNS}]
	case p.comparing: // it may be older than what the target has
		_, there = p.Segments.match(last.Sequence, last.TimeNS)
		for i := 0; there && i < len(origins); i++ {
			p.matchLocked(origins[i].Sequence, origins[i].TimeNS)
		}
	}
	if !there {
		p.doubts++
	}
	return there, nil
}

// gone reports whether the topic of a request does not exist, or was created again under the same name.
func gone(err error) bool { return brokerapi.Status(err) == http.StatusNotFound }

// inDoubt reports whether a failed put may be stored: unless no connection was made, or an answer denies it.
func inDoubt(err error) bool {
	switch status := brokerapi.Status(err); {
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		return false
	case status != 0:
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return !ok || op.Op != "dial"
}

// settle ends a comparison: from now on the copies are the ones found or appended during it.
// Copies of another history of the source count as messages of others. lost is the number of copies that the
// source, which begins with message start, no longer has.
func (p *copier) settle(start uint64) (lost uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.Segments {
		for n, ns := range x.times {
			if source := x.Source + uint64(n); source >= start {
				at, _ := p.Segments.match(source, ns)
				if _, found := p.matched.at(at); !found {
					lost++
				}
			}
		}
	}
	p.Segments, p.matched, p.comparing, p.high = p.matched, nil, false, p.Next
	for _, x := range p.Segments {
		p.high = max(p.high, x.Source+x.Count)
	}
	return lost
}

// placeOf is the position for a channel of the target when the channel of the source has finished
// everything below a sequence: before the first copy of any other message.
func (p *copier) placeOf(finished uint64) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.Segments.first(finished); ok {
		return at
	}
	return p.End
}

// A log goes back when it is restored from a backup, or continues after an unclean recovery: messages that were
// committed are gone, and other messages get their sequences.

const doubtWait = time.Second // the time between the two reads that a target has to fail

// verify checks that the target still has the newest copy. If it has lost it, twice in a row, the result is errWentBack.
func (p *copier) verify(ctx context.Context) error {
	for read := 0; read < 2; read++ {
		if read > 0 && !concurrency.Sleep(ctx, doubtWait) { // the broker may have been deposed
			return ctx.Err()
		}
		if lost, err := p.lost(ctx); err != nil || !lost {
			return err
		}
	}
	return errWentBack
}

// lost reports whether the target has lost the newest copy. A copy that its retention has removed is not lost.
func (p *copier) lost(ctx context.Context) (bool, error) {
	last, from, limit := p.Last, p.End, 0
	if from == 0 {
		return false, nil
	}
	if last != nil {
		from, limit = last.Target, 1
	}
	page, err := p.log.page(ctx, fmt.Sprint(from), limit)
	if err != nil {
		return false, err
	}
	switch {
	case last != nil && last.Target >= page.End:
		return true, nil
	case last != nil && last.Target >= page.Start:
		if len(page.Messages) == 0 {
			return false, fmt.Errorf("partition %d of %s: the leader does not return message %d", p.log.partition, p.log.topic, from)
		}
		o, ok := p.originOf(&page.Messages[0])
		if !ok || page.Messages[0].Sequence != from || o.Sequence != last.Source || o.TimeNS != last.TimeNS {
			return true, nil
		}
		if page.End < p.End { // messages of others are lost: other messages may have their sequences now
			page.End = last.Target + 1
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.End = min(p.End, page.End)
	return false, nil
}

// cut forgets the copies of messages from a sequence on: the source has lost them, and others get their sequences.
func (p *copier) cut(sequence uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Segments.cut(sequence)
	p.Next, p.high, p.Mark, p.Last, p.mixed = min(p.Next, sequence), min(p.high, sequence), "", nil, true
}

// dropOtherHistory is called when the target's log was read while a put of the same messages was in progress. Copies
// with their sequences come from an earlier attempt, or late from another history of the source, and then do not count.
func (p *copier) dropOtherHistory(ctx context.Context, origins []msgstream.Origin) error {
	if p.comparing || origins[0].Channel != "" {
		return nil
	}
	for _, o := range origins {
		if o.Sequence >= p.Next {
			return nil
		}
		p.mu.Lock()
		at, known := p.Segments.place(o.Sequence)
		p.mu.Unlock()
		if known {
			if same, err := p.isCopy(ctx, "", at, o); err != nil {
				return err
			} else if same {
				continue
			}
		}
		p.cut(o.Sequence)
		break
	}
	return nil
}

// sourceHas reports whether the source has the messages that are copied, or cannot tell: its retention may have
// removed them. They are not compared one by one: the source's log up to where a saved state ended, by its mark, and
// the original of the newest copy.
func (p *copier) sourceHas(ctx context.Context, s partitionLog) (bool, error) {
	if saved := p.resumed; saved != nil && saved.Mark != "" {
		page, err := s.page(ctx, fmt.Sprint(saved.Next), 0)
		if err != nil || page.End < saved.Next || page.Mark != "" && page.Mark != saved.Mark {
			return false, err
		}
	}
	if last := p.Last; last != nil {
		m, there, err := s.message(ctx, last.Source, "")
		if err != nil || there && m.TimeNS != last.TimeNS {
			return false, err
		}
	}
	p.resumed = nil
	return true, nil
}

// compare begins a comparison of all messages of the source with their copies: a side may have gone back. It reads the whole log
// of the target again, and makes the first message of the source the next one that may be missing, or the first
// one that was ever copied. append leaves out what is there. settle ends the comparison.
func (p *copier) compare(ctx context.Context, s partitionLog) error {
	page, err := s.page(ctx, "earliest", 0)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.copyState, p.high, p.matched = copyState{}, 0, nil
	p.comparing, p.mixed, p.resumed = true, false, nil
	clear(p.copies)
	clear(p.only)
	p.mu.Unlock()
	if err := p.scanUntil(ctx, 0); err != nil {
		return err
	}
	p.mu.Lock()
	next, there := p.Segments.lowest()
	p.mu.Unlock()
	if there && next > page.Start { // earlier messages were left out, or the target's retention has removed them
		m, ok, err := s.message(ctx, next, "")
		if err != nil {
			return err
		}
		p.mu.Lock()
		_, there = p.Segments.match(next, m.TimeNS)
		there = there && ok
		p.mu.Unlock()
	}
	if !there || next < page.Start {
		next = page.Start
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Next = next
	return nil
}
