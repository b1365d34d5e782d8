package tcp

import (
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/api"
)

// The codes of error frames. The code is the text before the first space.
const (
	codeInvalid        = "E_INVALID"
	codeBadBody        = "E_BAD_BODY"
	codeBadMessage     = "E_BAD_MESSAGE"
	codeBadTopic       = "E_BAD_TOPIC"
	codeBadChannel     = "E_BAD_CHANNEL"
	codeIdentifyFailed = "E_IDENTIFY_FAILED"
	codeSubFailed      = "E_SUB_FAILED"
	codeAuthDisabled   = "E_AUTH_DISABLED"
	codeAuthFailed     = "E_AUTH_FAILED"
	codeAuthError      = "E_AUTH_ERROR"
	codeAuthFirst      = "E_AUTH_FIRST"
	codeUnauthorized   = "E_UNAUTHORIZED"
	codeTooMany        = "E_TOO_MANY_CONNECTIONS"

	// The codes of the extended commands.
	codeBadPartition    = "E_BAD_PARTITION"
	codeTopicNotExist   = "E_TOPIC_NOT_EXIST"
	codeInvalidHeader   = "E_INVALID_JSON_HEADER"
	codeExtNotSupported = "E_EXT_NOT_SUPPORT"
	codeInvalidTrace    = "INVALID_TRACE_ID"
)

// commandError is the answer to a command that failed. If open is set, the connection stays usable; otherwise it ends.
type commandError struct {
	text string
	open bool
}

func (e *commandError) Error() string { return e.text }

// refusal returns an error after which the connection stays usable.
func refusal(code, format string, args ...any) *commandError {
	e := fatal(code, format, args...)
	e.open = true
	return e
}

func fatal(code, format string, args ...any) *commandError {
	return &commandError{text: code + " " + fmt.Sprintf(format, args...)}
}

// log returns the log with the client's address. The reader calls it.
func (c *conn) log() *logrus.Entry {
	line := c.h.backend.Log.WithField("client", c.about.Load().RemoteAddress)
	if !c.known {
		line = line.WithField(api.LogStranger, true)
	}
	return line
}

// logEnd logs that a client has disconnected, and what it did. A client that has not logged in has no line.
func (c *conn) logEnd() {
	if !c.known {
		return
	}
	fields := logrus.Fields{
		"for": time.Since(c.since).Round(time.Millisecond), "delivered": c.messages.Load(), "finished": c.finished.Load(), "requeued": c.requeued.Load(),
	}
	if s := c.consumes.Load(); s != nil {
		fields["topic"], fields["channel"] = s.topic, s.channel
	}
	if p := c.published.Load(); p != nil {
		fields["topic"], fields["published"] = p.topic, p.count.Load()
	}
	c.log().WithFields(fields).Info("client disconnected")
}

// named are the codes whose texts contain only valid names and limits. The text of any other error may quote a part of
// a message or a secret: it is not logged.
var named = map[string]bool{
	codeSubFailed: true, codeUnauthorized: true, codeAuthFirst: true, codeAuthDisabled: true,
}

// logRefusal logs a refused command. Refusals that leave the connection open, such as a late FIN, may be frequent: they
// have the level debug.
func (c *conn) logRefusal(e *commandError) {
	code, _, _ := strings.Cut(e.text, " ")
	line := c.log().WithField("code", code)
	if named[code] {
		line = line.WithField("answer", e.text)
	}
	if e.open {
		line.Debug("command refused")
		return
	}
	line.Info("command refused, closing the connection")
}
