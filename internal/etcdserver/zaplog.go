package etcdserver

import (
	"github.com/sirupsen/logrus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapLogger sends what etcd has to say to the broker's log, a level lower than
// etcd has it: it warns about every slow disk and every peer that is not there
// yet, which the broker reports itself, once and in its own words, and calls
// errors what it gets over.
func zapLogger(log logrus.FieldLogger) *zap.Logger {
	return zap.New(logrusCore{log: log.WithField("component", "etcd")})
}

// listenerEnded is what etcd says of each listener when it is stopped. If one
// fails by itself, Err tells that too.
const listenerEnded = "setting up serving from embedded etcd failed."

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

// Write implements zapcore.Core. zap itself ends the process after a fatal
// entry; here it is only written.
func (c logrusCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	log := c.log.WithFields(logrusFields(fields))
	switch {
	case e.Level > zapcore.ErrorLevel:
		log.Error(e.Message) // a panic or the end follows
	case e.Level == zapcore.ErrorLevel && e.Message != listenerEnded:
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
