package etcd

import (
	"strings"

	"github.com/sirupsen/logrus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapLogger writes etcd's messages to the broker's log, one level lower: etcd warns about every slow disk and every peer that
// does not run yet, which the broker reports once itself, and logs errors from which it recovers.
func zapLogger(log logrus.FieldLogger) *zap.Logger {
	return zap.New(logrusCore{log: log.WithField("component", "etcd")})
}

const (
	listenerEnded  = "setting up serving from embedded etcd failed." // for each listener at a stop; Err returns a failure
	storageVersion = "failed to update storage version"              // at the first start; etcd retries it
)

// logrusCore is a zapcore.Core on a logrus logger.
type logrusCore struct{ log logrus.FieldLogger }

// Enabled implements zapcore.Core.
func (c logrusCore) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

// With implements zapcore.Core.
func (c logrusCore) With(fields []zapcore.Field) zapcore.Core {
	return logrusCore{log: c.log.WithFields(logrusFields(fields))}
}

// Check implements zapcore.Core.
func (c logrusCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements zapcore.Core. giveUp logs the explanation of a fatal entry. A text with a formatting error is followed by
// one with the same content.
func (c logrusCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	log := c.log.WithFields(logrusFields(fields))
	switch {
	case e.Level == zapcore.ErrorLevel && e.Message != listenerEnded && e.Message != storageVersion && !strings.Contains(e.Message, "%!"):
		log.Warn(e.Message)
	default:
		log.Debug(e.Message)
	}
	return nil
}

// Sync implements zapcore.Core.
func (c logrusCore) Sync() error { return nil }

func logrusFields(fields []zapcore.Field) logrus.Fields {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(enc)
	}
	return logrus.Fields(enc.Fields)
}
