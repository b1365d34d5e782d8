package etcd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// errDiskFull means that the member cannot write because the disk is full.
var errDiskFull = errors.New("the disk is full; make room, then start again (nothing is damaged)")

// errFiles means that the operating system refuses the member access to its files.
var errFiles = errors.New("the operating system refuses access to its files")

// giveUp handles the end of etcd after a fatal error: etcd logs the error, and expects its logger to end the process or the
// goroutine. During a call of guard the goroutine ends, and guard returns the cause. Later the process ends: a member whose
// log or database failed can no longer be trusted, and etcd has no caller to return an error to.
type giveUp struct {
	log logrus.FieldLogger
	mu  struct {
		sync.Mutex
		guarded bool
		cause   error // the first cause
	}
}

// guard runs a part of etcd that may give up, in its own goroutine, and returns the cause. f uses the logger of g.
func (g *giveUp) guard(f func() error) (err error) {
	g.set(true)
	done := make(chan struct{})
	go func() { // ends with f
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				g.record(asError(p))
			}
		}()
		err = f()
	}()
	<-done
	if cause := g.set(false); cause != nil {
		return cause
	}
	return judge(err)
}

func (g *giveUp) set(guarded bool) (cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.guarded = guarded
	return g.mu.cause
}

// record keeps the first cause; it returns false if no guard runs to return it.
func (g *giveUp) record(cause error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.cause == nil {
		g.mu.cause = explainEnd(cause)
	}
	return g.mu.guarded
}

// logger writes etcd's messages to the broker's log, one level lower: etcd warns about every slow disk and every peer that does
// not run yet, which the broker reports once itself, and logs errors from which it recovers.
func (g *giveUp) logger() *zap.Logger {
	return zap.New(logrusCore{log: g.log.WithField("component", "etcd")}, zap.WithFatalHook(g), zap.WithPanicHook(g))
}

// OnWrite implements zapcore.CheckWriteHook. It is called when etcd has given up.
func (g *giveUp) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	cause := errors.New(e.Message)
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			cause = fmt.Errorf("%s: %w", e.Message, err)
		}
	}
	if g.record(cause) {
		runtime.Goexit()
	}
	if e.Level == zapcore.PanicLevel && !explained(cause) {
		panic(e.Message) // a bug of etcd: the stack shows where
	}
	g.log.WithError(explainEnd(cause)).Error("embedded etcd ended: stopping the broker")
	os.Exit(1)
}

// explained reports whether an operator can act on a cause; other causes are bugs.
func explained(cause error) bool {
	var errno syscall.Errno
	return errors.As(cause, &errno) || damaged(cause)
}

// explainEnd adds the operator's next step to the cause of etcd's end. If the operating system reports no cause, the
// files are at fault: etcd gives up for no other reason.
func explainEnd(cause error) error {
	verdict := verdictOn(cause)
	var errno syscall.Errno
	switch {
	case verdict != nil:
	case errors.As(cause, &errno) && errno != syscall.ENOENT:
		verdict = errFiles
	default:
		verdict = ErrDamaged
	}
	return fmt.Errorf("%w: %w", verdict, cause)
}

// judge adds the verdict to an error about files.
func judge(err error) error {
	if verdict := verdictOn(err); verdict != nil && !errors.Is(err, verdict) {
		return fmt.Errorf("%w: %w", verdict, err)
	}
	return err
}

// verdictOn returns errDiskFull, ErrDamaged or errFiles; nil for other errors.
func verdictOn(err error) error {
	var path *os.PathError
	var errno syscall.Errno
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return errDiskFull
	case damaged(err):
		return ErrDamaged
	case errors.As(err, &path) && errors.As(err, &errno) && errno != syscall.ENOENT:
		return errFiles
	}
	return nil
}

// damaged reports whether files contradict each other or themselves.
func damaged(err error) bool {
	for _, sign := range []error{
		wal.ErrCRCMismatch, wal.ErrMetadataConflict, wal.ErrFileNotFound, wal.ErrSnapshotMismatch, wal.ErrSnapshotNotFound,
		wal.ErrSliceOutOfRange, wal.ErrDecoderNotFound, snap.ErrCRCMismatch, snap.ErrNoDBSnapshot, io.ErrUnexpectedEOF,
	} {
		if errors.Is(err, sign) {
			return true
		}
	}
	if err == nil {
		return false
	}
	// raft and the bootstrap return only texts. The first text means that the other members rely on entries that this
	// log has lost.
	text := err.Error()
	return strings.Contains(text, "Was the raft log corrupted, truncated, or lost?") ||
		strings.Contains(text, " state.commit ") || strings.Contains(text, "does not match with snapshot")
}

// asError returns a panic's value as an error.
func asError(p any) error {
	if err, ok := p.(error); ok {
		return err
	}
	return fmt.Errorf("%v", p)
}

const (
	listenerEnded  = "setting up serving from embedded etcd failed." // logged for each listener at a stop; Err returns a failure
	storageVersion = "failed to update storage version"              // logged at the first start; etcd retries the operation
)

// logrusCore is a zapcore.Core on a logrus logger.
type logrusCore struct{ log logrus.FieldLogger }

func (c logrusCore) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

func (c logrusCore) With(fields []zapcore.Field) zapcore.Core {
	return logrusCore{log: c.log.WithFields(logrusFields(fields))}
}

func (c logrusCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements zapcore.Core. giveUp logs the explanation of a fatal entry. A text with a formatting error
// goes to the debug log, because one with the same content follows.
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

func (c logrusCore) Sync() error { return nil }

func logrusFields(fields []zapcore.Field) logrus.Fields {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(enc)
	}
	return logrus.Fields(enc.Fields)
}
