package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/sirupsen/logrus"
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

// lineFormat writes NSQ's lines, with the fields behind the text:
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
