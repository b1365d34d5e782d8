package transfer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/spf13/cobra"
	"golang.org/x/time/rate"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/copier"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

const (
	// idleFirst and idleMost are the pauses between two reads of a partition without new messages.
	idleFirst = 20 * time.Millisecond
	idleMost  = 250 * time.Millisecond
	// mirrorRetry is the pause after a request that failed.
	mirrorRetry = 500 * time.Millisecond
	// refusedRetry is the pause after a put that the target refuses, such as a message that is larger than it takes.
	refusedRetry = 10 * time.Second
	// mirrorGrace is how long a stop waits for the puts in flight.
	mirrorGrace = 5 * time.Second
	// behindLooks is how often in a row the leader of the source ends before a message that was copied, until the
	// source counts as gone back.
	behindLooks = 3
	// caughtUpPolls is how often in a row a mirror without anything left is seen before --until-caught-up ends.
	caughtUpPolls = 3
)

// mirroring is one run of a mirror. One goroutine owns it, and a goroutine for each link copies.
type mirroring struct {
	*mirrorCommand
	first                     string
	batch, rate, bytesRate    int
	poll                      time.Duration
	untilCaughtUp, noChannels bool
	metricsAddress            string
	say                       *cli.Reporter
	source                    string // its name
	progress                  *mirrorProgress
	links                     map[linkKey]*mirrorLink
	linksMu                   sync.Mutex   // the metrics read links
	past                      mirrorCounts // of links that have ended
	messageLimit, byteLimit   *rate.Limiter
	failed                    chan error
	running                   sync.WaitGroup
	began, shownAt            time.Time
	caughtUp                  int // polls in a row
	puts                      context.Context
}

// mirrorCounts are what finish prints of links.
type mirrorCounts struct {
	copied, skipped, doubts, rewinds int64
	missed                           uint64
}

func (c *mirrorCounts) add(l *mirrorLink) {
	c.copied += l.copied.Load()
	c.skipped += l.skipped.Load()
	c.doubts += l.p.Doubts()
	c.missed += l.missed.Load()
	c.rewinds += l.rewinds.Load()
}

// linkKey names a link.
type linkKey struct {
	topic     string
	partition int
}

// mirrorLink copies one partition.
type mirrorLink struct {
	key      linkKey
	p        *copier.Partition
	sourceID ident.TopicID
	targetID ident.TopicID
	cancel   context.CancelFunc // no page is read any more; a put may still be under way
	drop     context.CancelFunc // nor does a put wait for its answer
	puts     context.Context    // of the puts; the grace of a stop, until drop
	done     chan struct{}      // closed when nothing is copied any more
	ready    atomic.Bool        // the target was read
	compare  bool               // both logs have to be compared; it and held belong to the goroutine that copies
	held     bool               // the source was seen to have what is copied

	end, missed      atomic.Uint64 // of the source
	copied, bytes    atomic.Int64
	skipped, rewinds atomic.Int64
	oldest, answered atomic.Int64 // unix ns: of the first message that is left, 0 = none; of the source's last answer
}

// lag is the number of messages that are left.
func (l *mirrorLink) lag() uint64 {
	end, next := l.end.Load(), l.p.Next()
	return end - min(next, end)
}

// age is how long ago the first message that is left was published; or, if that is longer, how long the
// source has not answered.
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

func (o *mirroring) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	o.say = cli.NewReporter(cmd.ErrOrStderr())
	lock := flock.New(o.state + ".lock")
	if ok, err := lock.TryLock(); err != nil {
		return fmt.Errorf("--state: %w", err)
	} else if !ok {
		return fmt.Errorf("another mirror uses %s: run one at a time", o.state)
	}
	defer func() { _ = lock.Unlock() }()
	source, _, err := o.clusters(ctx)
	if err != nil {
		return err
	}
	o.source, o.began = source.Cluster, time.Now()
	if o.progress, err = loadMirror(o.state); err != nil {
		return err
	}
	o.links, o.failed = map[linkKey]*mirrorLink{}, make(chan error, 1)
	o.messageLimit, o.byteLimit = limiter(o.rate, o.batch), limiter(o.bytesRate, max(copyBatchBytes, maxMirrored))
	stopMetrics, err := o.serveMetrics()
	if err != nil {
		return err
	}
	defer stopMetrics()
	puts, cancel := graceful(ctx, mirrorGrace)
	defer cancel()
	o.puts = puts
	err = o.loop(ctx)
	for _, l := range o.links {
		l.cancel()
	}
	o.running.Wait()
	err = errors.Join(err, o.save())
	return o.finish(cmd, err)
}

// maxMirrored is the largest message that the throttle of bytes takes at once.
const maxMirrored = 16 << 20

// limiter returns nil without a limit.
func limiter(perSecond, burst int) *rate.Limiter {
	if perSecond == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(perSecond), max(perSecond, burst))
}

// graceful returns a context that ends some time after another one.
func graceful(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var timer *time.Timer
	var mu sync.Mutex
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		timer = time.AfterFunc(grace, cancel)
	})
	return longer, func() {
		stop()
		mu.Lock()
		defer mu.Unlock()
		if timer != nil {
			timer.Stop()
		}
		cancel()
	}
}

// loop looks at both clusters until ctx ends, a link fails, or nothing is left.
func (o *mirroring) loop(ctx context.Context) error {
	nextLook := time.Now()
	tick := time.NewTicker(min(cli.SaveEvery, o.poll))
	defer tick.Stop()
	for {
		if now := time.Now(); !now.Before(nextLook) {
			nextLook = now.Add(o.poll)
			if err := o.look(ctx); err != nil && ctx.Err() == nil {
				if final := new(cli.ExitError); copier.Refused(err) || errors.As(err, final) {
					return err
				}
				o.caughtUp = 0
				o.say.About("look", fmt.Sprintf("%s; next try in %s", oneLine(err), o.poll))
			}
			if o.untilCaughtUp && o.caughtUp >= caughtUpPolls {
				return nil
			}
		}
		select {
		case <-tick.C:
		case err := <-o.failed:
			return err
		case <-ctx.Done():
			return nil // Ctrl-C is the way to stop it
		}
		if time.Since(o.progress.savedAt) >= cli.SaveEvery {
			if err := o.save(); err != nil {
				return err
			}
		}
		o.show()
	}
}

// look creates what is missing at the target, starts links, and moves channels.
func (o *mirroring) look(ctx context.Context) error {
	source, _, err := o.clusters(ctx)
	if err != nil {
		return err
	}
	var failed []error
	there := map[string]ident.TopicID{}
	for _, topic := range source.Topics {
		there[topic.Topic] = topic.ID
	}
	if !slices.ContainsFunc(source.Topics, func(t api.TopicView) bool { return o.matches(t.Topic) }) {
		err := fmt.Errorf("the source has no topic that matches %s", strings.Join(o.patterns, " "))
		if o.untilCaughtUp {
			return cli.ExitError{Code: cli.ExitNotFound, Err: err}
		}
		failed = append(failed, err)
	}
	for key, l := range o.links {
		if there[key.topic] != l.sourceID {
			o.unlink(l) // its topic is gone, or another one has the name
		}
	}
	for _, topic := range source.Topics {
		if !o.matches(topic.Topic) {
			continue
		}
		if err := o.topic(ctx, topic); err != nil {
			if copier.Refused(err) && !copier.Gone(err) {
				return fmt.Errorf("topic %s: %w", topic.Topic, err)
			}
			failed = append(failed, fmt.Errorf("topic %s: %w", topic.Topic, err))
		}
	}
	left := false
	for _, l := range o.links {
		left = left || !l.ready.Load() || l.lag() > 0 || l.answered.Load() == 0
	}
	if left || len(failed) > 0 || len(o.links) == 0 {
		o.caughtUp = 0
	} else {
		o.caughtUp++
	}
	return errors.Join(failed...)
}

// topic starts the links of a topic, and moves its channels.
func (o *mirroring) topic(ctx context.Context, topic api.TopicView) error {
	view, err := ensureCopy(ctx, &o.t.Client, topic.Topic, len(topic.Partitions), topic.Ordered)
	if at := o.progress.Topics[topic.Topic]; errors.Is(err, errFewerPartitions) && at != nil && at.SourceID == topic.ID && at.TargetID == view.ID {
		return o.raise(ctx, topic)
	}
	if err != nil {
		return err
	}
	for _, p := range topic.Partitions {
		o.link(ctx, linkKey{topic.Topic, p.Partition}, topic.ID, view.ID)
	}
	if o.noChannels {
		return nil
	}
	return o.channels(ctx, topic.Topic)
}

// raise gives the copy of a topic the partitions that the topic has received since it is mirrored. The next look
// starts their links.
func (o *mirroring) raise(ctx context.Context, topic api.TopicView) error {
	q := url.Values{"topic": {topic.Topic}, "partitions": {strconv.Itoa(len(topic.Partitions))}}
	if topic.Ordered || topic.Dedupe == option.DedupeContent {
		q.Set("reorder", "true") // as at the source: the copies keep their partitions
	}
	_, err := o.t.CallAny(ctx, http.MethodPost, "/v1/topic/partitions", q)
	return err
}

// link starts the link of a partition, unless it runs between these two topics.
func (o *mirroring) link(ctx context.Context, key linkKey, sourceID, targetID ident.TopicID) {
	if l := o.links[key]; l != nil {
		if l.sourceID == sourceID && l.targetID == targetID && !l.isDone() {
			return
		}
		o.unlink(l) // one of the topics was deleted and created again
	}
	at := o.progress.Topics[key.topic]
	if at == nil || at.SourceID != sourceID || at.TargetID != targetID {
		at = &mirrorTopic{SourceID: sourceID, TargetID: targetID, Partitions: map[int]copier.State{}}
		o.progress.Topics[key.topic] = at
	}
	saved, known := at.Partitions[key.partition]
	p := copier.NewPartition(copier.Target{Client: &o.t.Client, Topic: key.topic, ID: targetID, Report: func(text string) { o.say.About(fmt.Sprint("target ", key), oneLine(errors.New(text))) }},
		msgstream.Origin{Cluster: o.source, TopicID: sourceID, Partition: uint16(key.partition)}, saved)
	running, cancel := context.WithCancel(ctx)
	puts, drop := context.WithCancel(o.puts)
	l := &mirrorLink{key: key, p: p, sourceID: sourceID, targetID: targetID, cancel: cancel, drop: drop, puts: puts, done: make(chan struct{})}
	o.linksMu.Lock()
	o.links[key] = l
	o.linksMu.Unlock()
	o.running.Go(func() {
		defer close(l.done)
		defer drop()
		defer cancel()
		for {
			err := o.copyPartition(running, l, known)
			if err == nil || running.Err() != nil || copier.Gone(err) {
				return // of a topic that is gone the next look finds the one that is there, or creates it
			}
			err = fmt.Errorf("topic %s, partition %d: %w", key.topic, key.partition, err)
			if o.untilCaughtUp {
				select {
				case o.failed <- err:
				default: // the first failure ends the mirror
				}
				return
			}
			o.say.About(fmt.Sprint("refused ", key), fmt.Sprintf("%s; next try in %s, other partitions continue", oneLine(err), refusedRetry))
			if !concurrency.Sleep(running, refusedRetry) {
				return
			}
		}
	})
}

// isDone reports whether nothing is copied any more.
func (l *mirrorLink) isDone() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// unlink ends a link and waits for its end, so that no put of it comes behind those of the next one.
func (o *mirroring) unlink(l *mirrorLink) {
	l.cancel()
	l.drop()
	<-l.done
	o.past.add(l)
	o.linksMu.Lock()
	defer o.linksMu.Unlock()
	delete(o.links, l.key)
}

// copyPartition copies until ctx ends, or the target refuses a put permanently. known: the link has a saved state.
func (o *mirroring) copyPartition(ctx context.Context, l *mirrorLink, known bool) error {
	l.compare = !known
	if known {
		if err := o.until(ctx, l, "the target", func() error { return l.p.Resume(ctx) }); err != nil || ctx.Err() != nil {
			return err
		}
	}
	pause, verified := idleFirst, time.Now()
	for fresh := false; ctx.Err() == nil; {
		if l.compare = l.compare || l.p.Mixed(); l.compare {
			l.compare, l.held = false, true
			l.ready.Store(false)
			if err := o.until(ctx, l, "the comparison", func() error { return l.p.Compare(ctx, o.sourceOf(l)) }); err != nil || ctx.Err() != nil {
				return err
			}
			if !l.p.HasCopies() {
				fresh = !known
				l.p.Settle(0)
			}
			known = true
		}
		if now := time.Now(); now.Sub(verified) >= o.poll {
			verified = now
			if err := o.until(ctx, l, "the target", func() error { return l.p.Verify(ctx) }); err != nil {
				return err
			}
			if l.compare {
				continue
			}
		}
		from := strconv.FormatUint(l.p.Next(), 10)
		if fresh {
			from = o.first
		}
		page, err := o.page(ctx, l, from, fresh)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if l.compare {
			continue
		}
		more, err := o.copyPage(ctx, l, page, fresh)
		fresh = false
		switch {
		case errors.Is(err, copier.ErrWentBack):
			o.targetWentBack(l)
			continue
		case err != nil:
			return err
		case !more && l.p.Comparing():
			if more, err = o.settle(ctx, l); err != nil {
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
func (o *mirroring) settle(ctx context.Context, l *mirrorLink) (more bool, err error) {
	var page copier.Page
	err = o.until(ctx, l, "the source", func() (err error) {
		page, err = o.sourceOf(l).Page(ctx, strconv.FormatUint(l.p.Next(), 10), 0)
		return err
	})
	if err != nil || ctx.Err() != nil || page.End > l.p.Next() {
		return true, err
	}
	if lost := l.p.Settle(page.Start); lost > 0 {
		l.rewinds.Add(1)
		o.say.Report(fmt.Sprintf("topic %s, partition %d: the source has lost messages that were copied: it was restored from a backup, or recovered without its in-sync set; the target keeps %d that the source does not have any more", l.key.topic, l.key.partition, lost))
	}
	l.ready.Store(true)
	return false, nil
}

// until repeats a request until it succeeds, ctx ends, or a broker refuses it permanently.
func (o *mirroring) until(ctx context.Context, l *mirrorLink, side string, try func() error) error {
	for {
		err := try()
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case errors.Is(err, copier.ErrWentBack):
			o.targetWentBack(l)
			return nil
		case copier.Refused(err):
			return fmt.Errorf("%s: %w", side, err)
		}
		o.say.About(fmt.Sprint(side, " ", l.key), fmt.Sprintf("topic %s, partition %d: %s: %s", l.key.topic, l.key.partition, side, oneLine(err)))
		if !concurrency.Sleep(ctx, mirrorRetry) {
			return nil
		}
	}
}

// targetWentBack says that the target has lost copies.
func (o *mirroring) targetWentBack(l *mirrorLink) {
	l.rewinds.Add(1)
	l.compare = true
	o.say.Report(fmt.Sprintf("topic %s, partition %d: the target has lost messages that were copied: it was restored from a backup, or recovered without its in-sync set; the mirror compares both logs, and copies again what is missing", l.key.topic, l.key.partition))
}

// sourceOf is the log that a link copies.
func (o *mirroring) sourceOf(l *mirrorLink) copier.Source {
	return copier.Source{Client: &o.from.Client, Topic: l.key.topic, ID: l.sourceID, Partition: l.key.partition}
}

// page reads the next page of the source. If the source does not have the messages any more that were copied,
// the logs have to be compared.
func (o *mirroring) page(ctx context.Context, l *mirrorLink, from string, fresh bool) (page copier.Page, err error) {
	for behind := 0; ; {
		err := o.until(ctx, l, "the source", func() (err error) {
			if behind > 0 {
				page, err = o.sourceOf(l).Page(ctx, from, o.batch) // another replica may be behind its leader
			} else {
				page, err = copier.Read(ctx, &o.from.Client, l.key.topic, l.sourceID, l.key.partition, from, "", o.batch)
			}
			return err
		})
		if err != nil || ctx.Err() != nil || fresh {
			return page, err
		}
		next, mark := l.p.Next(), l.p.Mark()
		switch {
		case page.End < next: // as below
		case !l.held: // the source has had the newest copy's sequence when the page was read
			err := o.until(ctx, l, "the source", func() (err error) { l.held, err = l.p.Holds(ctx, o.sourceOf(l)); return err })
			l.compare = err == nil && !l.held
			return page, err
		case mark == "" || page.Mark == "" || page.Mark == mark:
			return page, nil
		}
		if behind++; behind == 1 || page.End < next && behind <= behindLooks {
			if behind > 1 {
				concurrency.Sleep(ctx, mirrorRetry)
			}
			continue
		}
		l.compare = true
		return page, nil
	}
}

// oneLine is the text of an error for a log.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// copyPage copies a page of the source, and reports whether more may follow at once.
func (o *mirroring) copyPage(ctx context.Context, l *mirrorLink, page copier.Page, fresh bool) (more bool, err error) {
	next := l.p.Next()
	if page.Start > next && !fresh {
		l.missed.Add(page.Start - next)
		o.say.Report(fmt.Sprintf("topic %s, partition %d: retention at the source removed %d messages before they were copied", l.key.topic, l.key.partition, page.Start-next))
	}
	l.end.Store(page.End)
	l.answered.Store(time.Now().UnixNano())
	l.ready.Store(!l.p.Comparing())
	var b copyBatcher
	first := true
	flush := func() error {
		if len(b.messages) == 0 {
			return nil
		}
		if err := o.throttle(ctx, len(b.messages), b.bytes); err != nil {
			return err
		}
		if err := l.p.Append(l.puts, b.messages, ""); err != nil {
			return err
		}
		l.copied.Add(int64(len(b.messages)))
		l.bytes.Add(int64(b.bytes))
		b = copyBatcher{}
		return nil
	}
	messages := l.p.Missing(page.Messages, "")
	for i := range messages {
		m := &messages[i]
		if m.Sequence < next {
			continue // relocated
		}
		if first {
			l.oldest.Store(m.TimeNS)
			first = false
		}
		if origin, ok := msgstream.OriginOf(m.Header); ok && origin.TopicID == l.targetID {
			l.skipped.Add(1)
			continue
		}
		if b.full(m, o.batch) {
			if err := flush(); err != nil {
				return false, stopped(ctx, err)
			}
		}
		b.add(m)
	}
	if err := flush(); err != nil {
		return false, stopped(ctx, err)
	}
	l.p.SkipTo(page.Next, page.NextMark)
	l.oldest.Store(0)
	return page.Next < page.End, nil
}

// stopped returns no error if the mirror is being stopped.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// throttle waits until so much may be copied.
func (o *mirroring) throttle(ctx context.Context, messages, bytes int) error {
	if o.messageLimit != nil {
		if err := o.messageLimit.WaitN(ctx, messages); err != nil {
			return err
		}
	}
	if o.byteLimit != nil {
		return o.byteLimit.WaitN(ctx, min(bytes, o.byteLimit.Burst()))
	}
	return nil
}

// channels creates the channels of a topic at the target, and moves those without consumers forward.
func (o *mirroring) channels(ctx context.Context, topic string) error {
	channels, err := readChannels(ctx, &o.from.Client, topic)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	for _, ch := range channels {
		if _, err := ensureCopiedChannel(ctx, &o.t.Client, topic, ch); err != nil {
			return fmt.Errorf("channel %s: %w", ch.Name, err)
		}
	}
	at, err := copier.Positions(ctx, &o.t.Client, topic)
	if err != nil {
		return err
	}
	lowest := map[int]uint64{}
	for _, x := range at {
		low, known := lowest[x.Partition]
		if at := uint64(positionOf(x).Low()); !known || at < low {
			low = at
		}
		lowest[x.Partition] = low
		l := o.links[linkKey{topic, x.Partition}]
		if l == nil || !l.ready.Load() {
			continue
		}
		below, ok := finishedBelow(channels, x)
		if !ok || x.Consumers > 0 {
			continue
		}
		spans, _ := l.p.Finished(x, copier.Done{Below: below})
		if _, err := finishCopies(ctx, &o.t.Client, topic, l.targetID, x, spans); err != nil {
			return fmt.Errorf("channel %s: %w", x.Channel, err)
		}
	}
	for partition, low := range lowest {
		if l := o.links[linkKey{topic, partition}]; l != nil {
			l.p.Forget(low)
		}
	}
	return nil
}

// finishedBelow is the first message that the channel of the source has not finished, deferred ones included.
func finishedBelow(channels []msgstream.Channel, x api.ChannelPosition) (below uint64, ok bool) {
	for _, ch := range channels {
		for _, at := range ch.Positions {
			if ch.Name == x.Channel && at.Partition == x.Partition {
				return at.Low(), true
			}
		}
	}
	return 0, false
}

// save writes the state file.
func (o *mirroring) save() error {
	for key, l := range o.links {
		switch at := o.progress.Topics[key.topic].Partitions; {
		case l.ready.Load():
			at[key.partition] = l.p.State()
		case l.p.Comparing():
			delete(at, key.partition) // it begins again if it is broken off
		}
	}
	return o.progress.save()
}

// Show shows the progress: on a terminal at each tick, elsewhere every progressEvery.
func (o *mirroring) show() {
	if !o.say.Due(o.shownAt) {
		return
	}
	o.shownAt = time.Now()
	all, lag := o.counts()
	o.say.Show(fmt.Sprintf("partitions: %d, messages copied: %d, left: %d", len(o.links), all.copied, lag))
}

func (o *mirroring) counts() (all mirrorCounts, lag uint64) {
	all = o.past
	for _, l := range o.links {
		all.add(l)
		lag += l.lag()
	}
	return all, lag
}

// finish prints the counts.
func (o *mirroring) finish(cmd *cobra.Command, err error) error {
	all, lag := o.counts()
	caughtUp := err == nil && o.caughtUp >= caughtUpPolls
	o.say.Clear()
	if o.t.Output == "json" {
		return errors.Join(err, cli.PrintJSON(cmd.OutOrStdout(), map[string]any{
			"copied": all.copied, "left": lag, "puts_in_doubt": all.doubts, "not_copied_back": all.skipped, "missed": all.missed, "rewinds": all.rewinds, "caught_up": caughtUp,
		}))
	}
	text := fmt.Sprintf("%d messages copied in %s; %d puts without an answer were repeated", all.copied, time.Since(o.began).Round(time.Millisecond), all.doubts)
	if all.skipped > 0 {
		text += fmt.Sprintf("; %d messages came from the target and were not copied back", all.skipped)
	}
	if all.rewinds > 0 {
		text += fmt.Sprintf("; %d times a side had lost messages that were copied", all.rewinds)
	}
	if caughtUp {
		text += "; nothing is left"
	}
	fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

// serveMetrics serves GET /metrics; stop ends it.
func (o *mirroring) serveMetrics() (stop func(), err error) {
	if o.metricsAddress == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", o.metricsAddress)
	if err != nil {
		return nil, fmt.Errorf("--metrics-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", o.metricsHandler())
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // ErrServerClosed
	return func() { _ = s.Close(); serving.Wait() }, nil
}
