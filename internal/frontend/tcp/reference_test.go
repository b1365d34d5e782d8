package tcp_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference/protocol.md and errors.md")

const reference = "../../../docs/reference/"

// golden compares a document with the one that stands, or writes it.
func golden(t *testing.T, name, is string) {
	t.Helper()
	if *rewrite {
		require.NoError(t, os.WriteFile(reference+name, []byte(is), 0o644))
	}
	stands, err := os.ReadFile(reference + name)
	require.NoError(t, err)
	require.Equal(t, is, string(stands), "%s is not that of this build: make reference", name)
}

// described are the forms of the commands and their meanings. A command without a line here fails TestReference.
var described = map[string][2]string{
	"IDENTIFY":     {"`IDENTIFY`, size, JSON", "the client's name and what it asks for; the answer is JSON with `feature_negotiation`, else `OK`"},
	"AUTH":         {"`AUTH`, size, secret", "log in with the token of a user, or with a secret of the auth service"},
	"NOP":          {"`NOP`", "the answer to a heartbeat; has no answer"},
	"PUB":          {"`PUB TOPIC [PARTITION]`, size, body", "publish a message; `OK` when it is committed"},
	"MPUB":         {"`MPUB TOPIC [PARTITION]`, size, count, messages", "publish several messages: all are stored, or none"},
	"DPUB":         {"`DPUB TOPIC MS`, size, body", "publish a message that consumers receive MS milliseconds later"},
	"PUB_EXT":      {"`PUB_EXT TOPIC [PARTITION]`, size, header, body", "publish a message with a [header](#headers)"},
	"MPUB_EXT":     {"`MPUB_EXT TOPIC [PARTITION]`, size, count, messages", "an `MPUB` of messages with headers; all have the same `##key`"},
	"PUB_TRACE":    {"`PUB_TRACE TOPIC [PARTITION]`, size, trace id, body", "publish a message; the answer has its [position](#positions)"},
	"MPUB_TRACE":   {"`MPUB_TRACE TOPIC [PARTITION]`, size, count, messages", "an `MPUB` of messages with trace ids; the answer has the position of the first"},
	"SUB":          {"`SUB TOPIC CHANNEL [PARTITION]`", "receive the messages of a channel"},
	"SUB_ORDERED":  {"`SUB_ORDERED TOPIC CHANNEL [PARTITION]`", "receive the messages of an ordered channel, with their [positions](#positions); the channel becomes ordered"},
	"SUB_ADVANCED": {"`SUB_ADVANCED TOPIC CHANNEL [PARTITION] [START]`", "receive messages with their [positions](#positions); START moves the channel if it has no other consumer"},
	"RDY":          {"`RDY N`", "at most N messages may be in flight to this client"},
	"FIN":          {"`FIN ID`", "the message is done; has no answer"},
	"REQ":          {"`REQ ID MS`", "deliver the message again after MS milliseconds; has no answer"},
	"TOUCH":        {"`TOUCH ID`", "the timeout of the message starts again; has no answer"},
	"CLS":          {"`CLS`", "stop receiving messages; the answer is `CLOSE_WAIT`"},
}

const protocolHead = `# The protocol

This page is generated from the code (` + "`make reference`" + `).

A broker speaks the [NSQ protocol V2](https://nsq.io/clients/tcp_protocol_spec.html) on its TCP port, as nsqd 1.3 does, and the extended commands
of the replicated fork [youzan/nsq](https://github.com/youzan/nsq). A client that uses none of the extensions receives only stock frames. Sizes are 4 bytes,
big-endian. The rights: [rights.md](rights.md); the answers to a failure: [errors.md](errors.md).

## Commands

| form | meaning | right |
|---|---|---|
`

const protocolTail = `
## Headers

In ` + "`PUB_EXT` and `MPUB_EXT`" + ` each message is the length of its header (2 bytes, big-endian), the header, a JSON object, and the body. The broker reads these
fields; it refuses a value of another form with ` + "`E_INVALID_JSON_HEADER`" + `, and keeps all other fields as they are.

| field | value | meaning |
|---|---|---|
| ` + "`##key`" + ` | text | all puts with one key go to one partition, in their order |
| ` + "`##id`" + ` | text | a message that is published again under its id, within the ` + "`dedupe_window`" + ` of the topic, is not stored again. ` + "`MPUB_EXT`" + ` of several messages also requires a ` + "`##key`" + ` |
| ` + "`##seq`" + ` | an integer, 0 to 2^53 - 1 | the same as an id, for a client that has sent ` + "`producer_id`" + ` with IDENTIFY: name and number together are the id. Not allowed together with ` + "`##id`" + ` |
| ` + "`##ttl_ms`" + ` | a number above 0 | a consumer that has not received the message after this many milliseconds does not receive it |
| ` + "`##trace_id`" + ` | a decimal in a string | the answer has the position of the message |
| ` + "`##only_channel`" + ` | a channel | no other channel receives the message. Once there are users, this requires the right to administer the topic |
| ` + "`##epoch`" + ` | refused | the broker gives it to consumers of ` + "`SUB_ORDERED`" + `: a fencing token, which never falls for one partition |

` + "`\"producer_id\": \"NAME\"`" + ` in IDENTIFY, 1 to 32 bytes, names the client for ` + "`##seq`" + `; with ` + "`feature_negotiation`" + ` the answer also has it. Each run of a process needs a new name:
[pipelines](../guide/messages.md#pipelines). A refusal of ` + "`##seq`" + ` in ` + "`PUB_EXT`" + ` leaves the connection open.

A consumer that sends ` + "`\"extend_support\": true`" + ` with IDENTIFY receives the header in each message, after the id: one byte with its kind (0: none; 4: JSON), then, for JSON,
its length (2 bytes) and the header. Others receive the body alone. ` + "`desired_tag` and `ext_filter`" + ` of the fork name the filter that the
channel must have: [headers and filters](../guide/headers-and-filters.md).

## Positions

The answer to a put with a trace id has 30 bytes: ` + "`OK`" + `, the id of the message, the trace id and the sequence in the partition (8 bytes each), and the size of the bodies
(4 bytes). Messages of ` + "`SUB_ADVANCED` and `SUB_ORDERED`" + ` have the sequence (8 bytes) and the size of the body (4 bytes) in front of the body. The fork has byte offsets
and sizes on disk there.

START of ` + "`SUB_ADVANCED`" + ` is ` + "`timestamp:SECONDS`, `msgcount:SEQUENCE` or `special:-1`" + ` (the end). ` + "`virtual_queue`" + `, a byte offset of the fork, is refused.
`

// TestReference: docs/reference/protocol.md has the commands of this build.
func TestReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(protocolHead)
	for _, rule := range tcp.Commands() {
		d, ok := described[rule.Name]
		require.True(t, ok, "describe %s in reference_test.go", rule.Name)
		right := rule.Right.String()
		if rule.Right == access.Open {
			right = ""
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", d[0], d[1], right)
	}
	b.WriteString(protocolTail)
	golden(t, "protocol.md", b.String())
}

// meanings are those of the codes of errors.go.
var meanings = map[string]string{
	"E_INVALID":              "the command is unknown, has bad parameters, or is not allowed in the state of the connection",
	"E_BAD_BODY":             "the body is too big, too short, or malformed",
	"E_BAD_MESSAGE":          "a message is too big, empty, or malformed",
	"E_BAD_TOPIC":            "the name of the topic is not valid",
	"E_BAD_CHANNEL":          "the name of the channel is not valid",
	"E_IDENTIFY_FAILED":      "the requested features exclude each other",
	"E_SUB_FAILED":           "the subscription failed; the text is one of the table below",
	"E_AUTH_DISABLED":        "there are neither users nor an auth service",
	"E_AUTH_FAILED":          "the secret is wrong, or the auth service does not answer",
	"E_AUTH_ERROR":           "the answer of the auth service cannot be read",
	"E_AUTH_FIRST":           "the command requires a login",
	"E_UNAUTHORIZED":         "the user does not have the right",
	"E_TOO_MANY_CONNECTIONS": "the broker, the address or the user has reached its connection limit",
	"E_BAD_PARTITION":        "the partition is not a number from 0 to 1023",
	"E_TOPIC_NOT_EXIST":      "the topic does not have the partition that the command names; after a put the connection stays open",
	"E_INVALID_JSON_HEADER":  "the header of a message is not a JSON object, or one of its fields has a wrong value",
	"E_EXT_NOT_SUPPORT":      "IDENTIFY asks for a feature of the fork that this broker does not have",
	"INVALID_TRACE_ID":       "`##trace_id` is not a decimal in a string",
}

const errorsHead = `# Errors

This page is generated from the code (` + "`make reference`" + `).

## Causes

The table lists the answers to a put. Over TCP its text follows ` + "`E_PUB_FAILED PUB failed `" + ` (MPUB and DPUB likewise), and the connection stays open. Over HTTP it is
the field ` + "`message`" + ` of a JSON object; ` + "`Retry-After: 1`" + ` says that the same request may succeed a second later. A text may continue after the text shown here, with numbers or names.
The label is that of ` + "`lockstep_puts_total`" + ` ([metrics.md](../metrics.md)).

| text | HTTP | the client | label | answers |
|---|---|---|---|---|
`

const errorsTCP = `
## Codes of TCP

The first word of an error frame. After each of them the broker closes the connection.

| code | meaning |
|---|---|
`

const errorsFinish = `
` + "`E_FIN_FAILED`, `E_REQ_FAILED` and `E_TOUCH_FAILED`" + ` (the message is not in flight to this client: it timed out, or its leader changed) and
` + "`E_PUB_FAILED`, `E_MPUB_FAILED`, `E_DPUB_FAILED`" + ` leave the connection open.

## Codes of HTTP

The field ` + "`message`" + ` of answers that are no cause of the first table; [openapi.yaml](openapi.yaml) has those of each path.

| status | messages |
|---|---|
`

var remedies = map[outcome.Class]string{
	outcome.ClassRetryHere:      "nothing is stored: repeat it later",
	outcome.ClassRetryElsewhere: "nothing is stored: repeat it, at another broker",
	outcome.ClassDefinite:       "nothing is stored: a repeat does not help",
	outcome.ClassInDoubt:        "it may be stored: a repeat may store it twice, but not of messages that are recognised",
	outcome.ClassRolledBack:     "nothing is stored, now or later: repeat it",
}

// TestErrors: docs/reference/errors.md has the errors of this build.
func TestErrors(t *testing.T) {
	var b strings.Builder
	b.WriteString(errorsHead)
	for _, row := range outcome.Rows() {
		if row.Err == nil || row.Uses == outcome.OfBrokers {
			continue
		}
		http := ""
		if row.HTTP.Status != 0 {
			http = strings.TrimSpace(fmt.Sprintf("%d %s", row.HTTP.Status, code(row.HTTP.Message)))
		}
		if row.HTTP.RetryAfter {
			http += ", Retry-After"
		}
		var uses []string
		for _, u := range []struct {
			use  outcome.Uses
			name string
		}{{outcome.OfPuts, "puts"}, {outcome.OfFinishes, "FIN, REQ, TOUCH"}, {outcome.OfRequests, "requests"}} {
			if row.Uses&u.use != 0 {
				uses = append(uses, u.name)
			}
		}
		remedy := remedies[row.Class]
		require.NotEmpty(t, remedy, row.Err)
		if row.Uses&outcome.OfPuts == 0 {
			_, remedy, _ = strings.Cut(remedy, ": ")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", row.Err, http, remedy, code(row.Label), strings.Join(uses, ", "))
	}
	b.WriteString(errorsTCP)
	for _, c := range codesOf(t) {
		require.NotEmpty(t, meanings[c], "say what %s means in reference_test.go", c)
		fmt.Fprintf(&b, "| `%s` | %s |\n", c, meanings[c])
	}
	b.WriteString(errorsFinish)
	statuses := httpCodes(t)
	for _, status := range slices.Sorted(maps.Keys(statuses)) {
		fmt.Fprintf(&b, "| %d %s | `%s` |\n", status, http.StatusText(status), strings.Join(statuses[status], "`, `"))
	}
	golden(t, "errors.md", b.String())
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// codesOf are the constants of errors.go.
func codesOf(t *testing.T) (codes []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "code") {
			c, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			codes = append(codes, c)
		}
		return true
	})
	require.Greater(t, len(codes), 10)
	return codes
}

// httpCodes are the messages in the code of package httpapi, by their status.
func httpCodes(t *testing.T) map[int][]string {
	t.Helper()
	statuses := map[string]int{}
	for status := 400; status < 600; status++ {
		if text := http.StatusText(status); text != "" {
			statuses["Status"+strings.NewReplacer(" ", "", "-", "").Replace(text)] = status
		}
	}
	found := map[int][]string{}
	add := func(status, message ast.Expr) { // others than constants say what the cause of the first table says
		selector, ok := status.(*ast.SelectorExpr)
		text, literal := message.(*ast.BasicLit)
		if !ok || !literal {
			return
		}
		name, err := strconv.Unquote(text.Value)
		require.NoError(t, err)
		n := statuses[selector.Sel.Name]
		require.NotZero(t, n, selector.Sel.Name)
		if !slices.Contains(found[n], name) {
			found[n] = append(found[n], name)
		}
	}
	files, err := filepath.Glob("../httpapi/*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && ((f.Name == "fail" || f.Name == "refuse") && len(n.Args) == 2 || f.Name == "explain" && len(n.Args) > 2) {
					add(n.Args[0], n.Args[1])
				}
			case *ast.CompositeLit:
				if f, ok := n.Type.(*ast.Ident); ok && f.Name == "failure" {
					fields := map[string]ast.Expr{}
					for _, e := range n.Elts {
						field := e.(*ast.KeyValueExpr)
						fields[field.Key.(*ast.Ident).Name] = field.Value
					}
					add(fields["status"], fields["message"])
				}
			}
			return true
		})
	}
	for _, r := range slices.Concat(httpapi.Routes(), httpapi.LookupRoutes()) {
		for _, code := range r.Codes() {
			if !slices.Contains(found[http.StatusBadRequest], code) {
				found[http.StatusBadRequest] = append(found[http.StatusBadRequest], code)
			}
		}
	}
	for status := range found {
		slices.SortFunc(found[status], cmp.Compare[string])
	}
	require.Greater(t, len(found), 5)
	return found
}
