package transfer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

const (
	// idleFirst and idleMost are the pauses between two reads of a partition without new messages.
	idleFirst   = 20 * time.Millisecond
	idleMost    = 250 * time.Millisecond
	mirrorRetry = 500 * time.Millisecond // the pause after a request that failed
	// refusedRetry is the pause after a put that the target refuses, such as a message that is larger than it takes.
	refusedRetry = 10 * time.Second
	// behindReads consecutive reads that end before a copied message mean that the source has lost messages.
	behindReads = 3
)

type linkKey struct {
	topic     string
	partition int
}

type mirrorLink struct {
	o       *mirroring
	from    partitionLog // of the source
	p       *copier
	cancel  context.CancelFunc // ends the reading of pages; a put may still be in flight
	drop    context.CancelFunc // nor does a put wait for its answer
	puts    context.Context    // of the puts; the grace of a stop, until drop
	done    chan struct{}      // closed when the goroutine that copies has ended
	ready   atomic.Bool        // the target was read
	compare bool               // both logs have to be compared; it and checked belong to the goroutine that copies
	checked bool               // the source was seen to have what is copied

	end, missed      atomic.Uint64 // of the source
	copied, bytes    atomic.Int64
	skipped, rewinds atomic.Int64
	oldest, answered atomic.Int64 // unix ns: of the first message that is left, 0: nothing is left; of the source's last answer
}

func (l *mirrorLink) lag() uint64 {
	end, next := l.end.Load(), l.p.view().next
	return end - min(next, end)
}

// age is the age of the first message that is left, or the time since the source's last answer if that is longer.
func (l *mirrorLink) age(now time.Time) time.Duration {
	var age time.Duration
	if t := l.oldest.Load(); t != 0 {
		age = now.Sub(time.Unix(0, t))
	}
	if t := l.answered.Load(); t != 0 {
		if silent := now.Sub(time.Unix(0, t)); silent > mirrorGrace {
			age = max(age, silent)
		}
	}
	return max(age, 0)
}

func (l *mirrorLink) String() string {
	return fmt.Sprintf("topic %s, partition %d", l.from.topic, l.from.partition)
}

func (l *mirrorLink) report(format string, args ...any) {
	l.o.reporter.Report(fmt.Sprintf("%v: ", l) + fmt.Sprintf(format, args...))
}

// run copies until ctx ends or a topic is gone. A put that the target refuses is repeated. known: the link has a saved state.
func (l *mirrorLink) run(ctx context.Context, known bool) {
	for {
		err := l.copy(ctx, known)
		if err == nil || ctx.Err() != nil || gone(err) {
			return // if the topic was deleted, the next poll finds the new one, or creates it
		}
		err = fmt.Errorf("%v: %w", l, err)
		if l.o.untilCaughtUp {
			select {
			case l.o.failed <- err:
			default: // the first failure ends the mirror
			}
			return
		}
		l.o.reporter.About(fmt.Sprint("refused ", l), fmt.Sprintf("%s; next try in %s, other partitions continue", oneLine(err.Error()), refusedRetry))
		if !concurrency.Sleep(ctx, refusedRetry) {
			return
		}
	}
}

// copy copies until ctx ends, or the target refuses a put permanently.
func (l *mirrorLink) copy(ctx context.Context, known bool) error {
	l.compare = !known
	if known {
		if err := l.until(ctx, "the target", func() error { return l.p.resume(ctx) }); err != nil {
			return err
		}
	}
	pause, verified := idleFirst, time.Now()
	for fresh := false; ctx.Err() == nil; {
		if l.compare = l.compare || l.p.view().mixed; l.compare {
			l.compare, l.checked = false, true
			l.ready.Store(false)
			if err := l.until(ctx, "the comparison", func() error { return l.p.compare(ctx, l.from) }); err != nil {
				return err
			}
			if !l.p.view().hasAny {
				fresh = !known
				l.p.settle(0)
			}
			known = true
		}
		if now := time.Now(); now.Sub(verified) >= l.o.poll {
			verified = now
			if err := l.until(ctx, "the target", func() error { return l.p.verify(ctx) }); err != nil {
				return err
			}
			if l.compare {
				continue
			}
		}
		from := strconv.FormatUint(l.p.view().next, 10)
		if fresh {
			from = l.o.first
		}
		page, err := l.page(ctx, from, fresh)
		if err != nil {
			return err
		}
		if l.compare {
			continue
		}
		more, err := l.copyPage(ctx, page, fresh)
		fresh = false
		switch {
		case errors.Is(err, errWentBack):
			l.targetWentBack()
			continue
		case err != nil:
			return err
		case !more && l.p.view().comparing:
			if more, err = l.settle(ctx); err != nil {
				return err
			}
		}
		if more {
			pause = idleFirst
			continue
		}
		concurrency.Sleep(ctx, pause)
		pause = min(2*pause, idleMost)
	}
	return nil
}

// settle ends the comparison of the two logs, if the leader of the source has no further message.
func (l *mirrorLink) settle(ctx context.Context) (more bool, err error) {
	var page logPage
	next := l.p.view().next
	err = l.until(ctx, "the source", func() (err error) {
		page, err = l.from.page(ctx, strconv.FormatUint(next, 10), 0)
		return err
	})
	if err != nil || page.End > next {
		return true, err
	}
	if lost := l.p.settle(page.Start); lost > 0 {
		l.rewinds.Add(1)
		l.report("the source has lost messages that were copied%s; the target still has %d that the source no longer has", wentBack, lost)
	}
	l.ready.Store(true)
	return false, nil
}

// until repeats a request until it succeeds, ctx ends, or a broker refuses it permanently.
func (l *mirrorLink) until(ctx context.Context, side string, try func() error) error {
	report := func(err error) {
		l.o.reporter.About(fmt.Sprint(side, " ", l), fmt.Sprintf("%v: %s: %s", l, side, oneLine(err.Error())))
	}
	err := repeat(ctx, mirrorRetry, report, func() error {
		err := try()
		if errors.Is(err, errWentBack) {
			l.targetWentBack()
			return nil
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: %w", side, err)
	}
	return err
}

const wentBack = ": it was restored from a backup, or recovered without its in-sync set" // why a log loses messages

func (l *mirrorLink) targetWentBack() {
	l.rewinds.Add(1)
	l.compare = true
	l.report("the target has lost messages that were copied%s; the mirror compares both logs, and copies again what is missing", wentBack)
}

// page reads the next page of the source. It requests a comparison if the source has lost messages that were copied.
func (l *mirrorLink) page(ctx context.Context, from string, fresh bool) (page logPage, err error) {
	for behind := 0; ; {
		err := l.until(ctx, "the source", func() (err error) {
			if behind > 0 {
				page, err = l.from.page(ctx, from, l.o.batch) // another replica may be behind its leader
			} else {
				page, err = l.from.read(ctx, from, "", l.o.batch)
			}
			return err
		})
		if err != nil || fresh {
			return page, err
		}
		at := l.p.view()
		switch {
		case page.End < at.next: // as below
		case !l.checked: // the source has had the newest copy's sequence when the page was read
			err := l.until(ctx, "the source", func() (err error) { l.checked, err = l.p.sourceHas(ctx, l.from); return err })
			l.compare = err == nil && !l.checked
			return page, err
		case at.mark == "" || page.Mark == "" || page.Mark == at.mark:
			return page, nil
		}
		if behind++; behind == 1 || page.End < at.next && behind <= behindReads {
			if behind > 1 {
				concurrency.Sleep(ctx, mirrorRetry)
			}
			continue
		}
		l.compare = true
		return page, nil
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// copyPage copies a page of the source, and reports whether more may follow at once.
func (l *mirrorLink) copyPage(ctx context.Context, page logPage, fresh bool) (more bool, err error) {
	at := l.p.view()
	if page.Start > at.next && !fresh {
		l.missed.Add(page.Start - at.next)
		l.report("retention at the source removed %s before copying", api.Count(page.Start-at.next, "message"))
	}
	l.end.Store(page.End)
	l.answered.Store(time.Now().UnixNano())
	l.ready.Store(!at.comparing)
	b := copyBatcher{most: l.o.batch, put: func(messages []msgstream.Message, bytes int) error {
		if err := l.o.messageLimit.WaitN(ctx, len(messages)); err != nil {
			return err
		}
		if err := l.o.byteLimit.WaitN(ctx, min(bytes, l.o.byteLimit.Burst())); err != nil {
			return err
		}
		if err := l.p.append(l.puts, messages, ""); err != nil {
			return err
		}
		l.copied.Add(int64(len(messages)))
		l.bytes.Add(int64(bytes))
		return nil
	}}
	first := true
	for _, m := range l.p.missing(page.Messages, "") {
		if m.Sequence < at.next {
			continue // relocated
		}
		if first {
			l.oldest.Store(m.TimeNS)
			first = false
		}
		if origin, ok := msgstream.OriginOf(m.Header); ok && origin.TopicID == l.p.log.id {
			l.skipped.Add(1)
			continue
		}
		if err := b.add(&m); err != nil {
			return false, err
		}
	}
	if err := b.flush(); err != nil {
		return false, err
	}
	l.p.skipTo(page.Next, page.NextMark)
	l.oldest.Store(0)
	return page.Next < page.End, nil
}
