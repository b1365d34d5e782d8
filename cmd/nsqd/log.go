package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/observe/redact"
)

// timeLayout is the time format of NSQ's log lines.
const timeLayout = "2006/01/02 15:04:05.000000"

func newLog(o config.Options) *logrus.Logger {
	log := logrus.New()
	log.SetFormatter(newLimitedFormat(lineFormat{prefix: o.LogPrefix}))
	if o.LogFormat == "json" {
		log.SetFormatter(newLimitedFormat(newJSONFormat(o.NodeName)))
	}
	level, err := parseLevel(o.LogLevel)
	if err != nil {
		level = logrus.InfoLevel // Load has checked the name
	}
	log.SetLevel(level)
	return log
}

// levels are NSQ's levels, with the number in /config/log_level.
var levels = [...]struct {
	name  string
	level logrus.Level
}{
	1: {"debug", logrus.DebugLevel}, 2: {"info", logrus.InfoLevel}, 3: {"warn", logrus.WarnLevel},
	4: {"error", logrus.ErrorLevel}, 5: {"fatal", logrus.FatalLevel},
}

// parseLevel accepts only NSQ's names: logrus has more.
func parseLevel(name string) (logrus.Level, error) {
	name = strings.ToLower(name)
	if name == "warning" {
		name = "warn"
	}
	for _, l := range levels[1:] {
		if l.name == name {
			return l.level, nil
		}
	}
	return 0, fmt.Errorf("log level %q is not debug, info, warn, error or fatal", name)
}

func levelNumber(level logrus.Level) int {
	for n, l := range levels {
		if n > 0 && l.level == level {
			return n
		}
	}
	return 0
}

// lineFormat writes NSQ's lines, with the fields after the text:
//
//	[nsqd] 2026/11/20 16:01:33.489500 INFO: text  node=n1 topic=orders
type lineFormat struct{ prefix string }

func (f lineFormat) Format(e *logrus.Entry) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s%s %s: %s", f.prefix, e.Time.Format(timeLayout), strings.ToUpper(e.Level.String()), api.Printable(strings.TrimRight(e.Message, "\n")))
	keys := slices.SortedFunc(maps.Keys(e.Data), cmp.Compare[string])
	for i, k := range keys {
		if i == 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, " %s=%v", k, quoted(e.Data[k]))
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// jsonFormat writes one JSON object a line: time, level, msg, broker, and the fields of the line.
type jsonFormat struct {
	broker string
	to     logrus.JSONFormatter
}

func newJSONFormat(broker string) jsonFormat {
	return jsonFormat{broker: broker, to: logrus.JSONFormatter{TimestampFormat: time.RFC3339Nano, DisableHTMLEscape: true}}
}

// Format implements logrus.Formatter. Durations and addresses are texts, as in the other format.
func (f jsonFormat) Format(e *logrus.Entry) ([]byte, error) {
	fields := make(logrus.Fields, len(e.Data)+1)
	for k, v := range e.Data {
		if s, ok := v.(fmt.Stringer); ok {
			v = s.String()
		}
		fields[k] = v
	}
	fields["broker"] = f.broker
	line := *e
	line.Data = fields
	return f.to.Format(&line)
}

func quoted(v any) any {
	if s := fmt.Sprint(v); strings.ContainsAny(s, " \"=") || !api.IsPrintable(s) {
		return fmt.Sprintf("%q", s)
	}
	return v
}

// logSettings writes the settings that differ from the defaults, without secrets, and the data path.
func logSettings(log logrus.FieldLogger, o config.Options) {
	dir, err := filepath.Abs(o.DataPath)
	if err != nil {
		dir = o.DataPath // for the log only
	}
	log.WithField("data_path", dir).Infof("settings that differ from the defaults: %s", strings.Join(o.Changed(), "; "))
}

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

// Format implements logrus.Formatter. An empty text prints no line.
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
