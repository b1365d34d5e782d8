package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/sirupsen/logrus"
)

// timeLayout is the time format of NSQ's log lines.
const timeLayout = "2006/01/02 15:04:05.000000"

// newLog makes the process's log, on stderr.
func newLog(o config.Options) *logrus.Logger {
	log := logrus.New()
	log.SetFormatter(newLimitedFormat(lineFormat{prefix: o.LogPrefix}))
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

// levelNumber returns NSQ's number of a level.
func levelNumber(level logrus.Level) int {
	for n, l := range levels {
		if n > 0 && l.level == level {
			return n
		}
	}
	return 0
}

// lineFormat writes NSQ's lines, with the fields behind the text:
//
//	[nsqd] 2026/11/20 16:01:33.489500 INFO: text  node=n1 topic=orders
type lineFormat struct{ prefix string }

// Format implements logrus.Formatter.
func (f lineFormat) Format(e *logrus.Entry) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s%s %s: %s", f.prefix, e.Time.Format(timeLayout), levelName(e.Level), e.Message)
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

func levelName(l logrus.Level) string {
	return strings.ToUpper(l.String())
}

func quoted(v any) any {
	if s := fmt.Sprint(v); strings.ContainsAny(s, " \n\"=") {
		return fmt.Sprintf("%q", s)
	}
	return v
}
