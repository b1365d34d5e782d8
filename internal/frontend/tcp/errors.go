package tcp

import "fmt"

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

	// Of the extended commands.
	codeBadPartition    = "E_BAD_PARTITION"
	codeTopicNotExist   = "E_TOPIC_NOT_EXIST"
	codeInvalidHeader   = "E_INVALID_JSON_HEADER"
	codeExtNotSupported = "E_EXT_NOT_SUPPORT"
	codeInvalidTrace    = "INVALID_TRACE_ID"
)

// commandError is the answer to a command that failed. If open is set the connection stays usable; otherwise it ends.
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

// fatal returns an error that ends the connection.
func fatal(code, format string, args ...any) *commandError {
	return &commandError{text: code + " " + fmt.Sprintf(format, args...)}
}
