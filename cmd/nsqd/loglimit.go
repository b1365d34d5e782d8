package main

import (
	"bytes"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/observe/redact"
)

const (
	// maxLines is how many lines of one message a second has. Lines differ in their fields, and in the numbers of their
	// texts; the message is the rest.
	maxLines = 20
	// maxLinesBeforeLogin is how many lines a second all clients that have not logged in cause together.
	maxLinesBeforeLogin = 5
	// linesBeforeLogin is the message under which they are counted.
	linesBeforeLogin = "lines of clients that have not logged in"
	// maxMessages bounds the messages that are counted apart in a second; the others count together.
	maxMessages = 500
)

// limitedFormat leaves out lines that repeat a message too often: any client can cause some, and must not fill the disk
// with them. The count of the lines that were left out follows with the first line of a later second. Audit lines,
// which have a limit of their own, and debug lines are never left out.
type limitedFormat struct {
	inner logrus.Formatter
	now   func() time.Time
	mu    struct {
		sync.Mutex
		second  int64
		lines   map[string]int // of each message in this second
		omitted map[string]int
	}
}

func newLimitedFormat(inner logrus.Formatter) *limitedFormat {
	f := &limitedFormat{inner: inner, now: time.Now}
	f.mu.lines, f.mu.omitted = map[string]int{}, map[string]int{}
	return f
}

// Format implements logrus.Formatter. An empty text is no line.
func (f *limitedFormat) Format(e *logrus.Entry) ([]byte, error) {
	if e.Level >= logrus.DebugLevel || e.Level <= logrus.FatalLevel || e.Data["audit"] != nil {
		text, err := f.inner.Format(e)
		return []byte(redact.Text(string(text))), err
	}
	message, most := messageOf(e), maxLines
	if e.Data[api.LogStranger] != nil {
		message, most = linesBeforeLogin, maxLinesBeforeLogin
	}
	summary, kept := f.count(message, most)
	var b bytes.Buffer
	for message, n := range summary {
		text, err := f.inner.Format(&logrus.Entry{
			Logger: e.Logger, Time: e.Time, Level: logrus.WarnLevel, Data: logrus.Fields{"lines": n, "message": message},
			Message: "left out lines of a message that repeats too often",
		})
		if err != nil {
			return nil, err
		}
		b.Write(text)
	}
	if kept {
		text, err := f.inner.Format(e)
		if err != nil {
			return nil, err
		}
		b.Write(text)
	}
	return []byte(redact.Text(b.String())), nil
}

// count counts a line, and reports whether it is kept. The summary has the lines that were left out in an earlier
// second.
func (f *limitedFormat) count(message string, most int) (summary map[string]int, kept bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.now().Unix(); now != f.mu.second {
		f.mu.second = now
		clear(f.mu.lines)
		if len(f.mu.omitted) > 0 {
			summary, f.mu.omitted = f.mu.omitted, map[string]int{}
		}
	}
	if _, known := f.mu.lines[message]; !known && len(f.mu.lines) >= maxMessages {
		message = "(others)"
	}
	if f.mu.lines[message]++; f.mu.lines[message] <= most {
		return summary, true
	}
	f.mu.omitted[message]++
	return summary, false
}

// messageOf is the text of a line without its numbers: those of addresses, ports and sizes.
func messageOf(e *logrus.Entry) string {
	if !strings.ContainsAny(e.Message, "0123456789") {
		return e.Message
	}
	before := rune(0)
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			r = '#'
		}
		if r == '#' && before == '#' {
			return -1
		}
		before = r
		return r
	}, e.Message)
}
