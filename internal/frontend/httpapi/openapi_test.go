package httpapi_test

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/admission"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	settings "github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi/consume"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference/openapi.yaml")

const document = "../../../docs/reference/openapi.yaml"

// The parts of an OpenAPI document that this one has. Maps are written in the order of their
// keys.
type (
	openAPI struct {
		OpenAPI    string                          `yaml:"openapi"`
		Info       map[string]any                  `yaml:"info"`
		Servers    []map[string]string             `yaml:"servers"`
		Security   []map[string][]string           `yaml:"security"`
		Paths      map[string]map[string]operation `yaml:"paths"`
		Components map[string]any                  `yaml:"components"`
	}
	operation struct {
		OperationID string                `yaml:"operationId"`
		Tags        []string              `yaml:"tags"`
		Summary     string                `yaml:"summary"`
		Description string                `yaml:"description,omitempty"`
		Security    []map[string][]string `yaml:"security,omitempty"`
		Parameters  []parameter           `yaml:"parameters,omitempty"`
		Body        map[string]any        `yaml:"requestBody,omitempty"`
		Responses   map[string]any        `yaml:"responses"`
	}
	parameter struct {
		Name        string         `yaml:"name"`
		In          string         `yaml:"in"`
		Description string         `yaml:"description,omitempty"`
		Required    bool           `yaml:"required,omitempty"`
		Schema      map[string]any `yaml:"schema"`
	}
)

const introduction = `The HTTP API of a broker: that of nsqd and nsqlookupd, and the cluster's own paths below /v1. Any broker answers for the whole cluster, but for
/stats, /info, /metrics, /config, /debug, /v1/partition/digest and /v1/audit, which are of one broker.

An error is JSON with the field message. Arguments belong into the query string, and the first value of a name counts. An argument that a path does not have
is refused with 400, but for the paths of NSQ alone, which ignore it. "#" in a name is %23. Clients that must authenticate send "Authorization: Bearer TOKEN";
without users and without an auth service nobody must.

This document is generated from the table that the broker's router uses (make reference).`

// words are the rights of a route in words.
func words(rule httpapi.Route) string {
	switch {
	case rule.Right == access.Open:
		return ""
	case rule.Right == access.AdministerCluster:
		return "Takes the right to administer the cluster."
	case rule.Right == access.Discover:
		return "Takes any right on the topic."
	case rule.OfTopic():
		return "Takes the right to " + map[access.Right]string{access.Publish: "publish to", access.Consume: "consume from", access.Administer: "administer"}[rule.Right] + " the topic."
	}
	return fmt.Sprintf("Takes the right to %s.", rule.Right)
}

// schemas makes JSON schemas of Go types as encoding/json writes them. Structs are components.
type schemas map[string]any

func (s schemas) of(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return map[string]any{}
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return map[string]any{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": "string", "contentEncoding": "base64"}
		}
		return map[string]any{"type": []string{"array", "null"}, "items": s.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Interface:
		return map[string]any{}
	case reflect.Struct:
		return s.component(t)
	}
	panic("no schema of " + t.String())
}

func (s schemas) component(t reflect.Type) map[string]any {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if t.PkgPath() == reflect.TypeFor[console.Overview]().PkgPath() {
		name = "Console" + name
	}
	if _, known := s[name]; !known {
		properties, required := map[string]any{}, []string{}
		s[name] = nil // a type that has itself
		s.fields(t, properties, &required)
		schema := map[string]any{"type": "object", "properties": properties}
		if len(required) > 0 {
			schema["required"] = required
		}
		s[name] = schema
	}
	return map[string]any{"$ref": "#/components/schemas/" + name}
}

func (s schemas) fields(t reflect.Type, properties map[string]any, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Pointer: // all of it is there, or nothing
			s.fields(f.Type.Elem(), properties, new([]string))
		case f.Anonymous && name == "":
			s.fields(f.Type, properties, required)
		default:
			if name == "" {
				name = f.Name
			}
			properties[name] = s.of(f.Type)
			if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
				if f.Type.Kind() == reflect.Pointer {
					properties[name] = map[string]any{"anyOf": []any{properties[name], map[string]any{"type": "null"}}}
				}
				if !slices.Contains(*required, name) { // else it replaces a field of an embedded struct
					*required = append(*required, name)
				}
			}
		}
	}
}

func parameterOf(a httpapi.Argument) parameter {
	p := parameter{Name: a.Name, In: "query", Description: a.Help, Required: a.Required}
	switch a.Kind {
	case httpapi.Boolean:
		p.Schema = map[string]any{"type": "boolean"}
	case httpapi.Number:
		p.Schema = map[string]any{"type": "integer", "minimum": 0}
	case httpapi.Milliseconds:
		p.Schema = map[string]any{"type": "integer", "minimum": 0}
		p.Description += "; in milliseconds"
	case httpapi.Duration:
		p.Schema = map[string]any{"type": "string", "examples": []string{"24h", "1m30s"}}
	default:
		p.Schema = map[string]any{"type": "string"}
	}
	if a.Repeats {
		p.Schema = map[string]any{"type": "array", "items": p.Schema, "minItems": 1}
		p.Description += " (repeat)"
	}
	return p
}

// responses are the answers of a route.
func responses(route httpapi.Route, s schemas) map[string]any {
	answers := map[string]any{}
	switch body := route.Reply.(type) {
	case nil:
		answers["200"] = map[string]any{"description": "done; no body"}
	case string:
		content := map[string]any{"type": "string"}
		if body != "" {
			content["const"] = body
		}
		if route.Path == "/config/:opt" {
			content = map[string]any{}
		}
		answers["200"] = map[string]any{"description": "done", "content": map[string]any{"text/plain": map[string]any{"schema": content}}}
	default:
		answers["200"] = map[string]any{"description": "done", "content": map[string]any{"application/json": map[string]any{"schema": s.of(reflect.TypeOf(body))}}}
	}
	codes := map[int][]string{}
	add := func(status int, message string) {
		if !slices.Contains(codes[status], message) {
			codes[status] = append(codes[status], message)
		}
	}
	for _, message := range route.Codes() {
		add(http.StatusBadRequest, message)
	}
	if !route.Lenient {
		add(http.StatusBadRequest, "an argument that the path does not have")
	}
	for _, row := range outcome.Rows() {
		if row.Uses&route.Uses != 0 && row.HTTP.Status != 0 {
			add(row.HTTP.Status, messageOf(row))
		}
	}
	if route.Path == "/pub" || route.Path == "/mpub" {
		add(http.StatusRequestEntityTooLarge, "MSG_TOO_BIG")
		add(http.StatusRequestEntityTooLarge, "HEADERS_TOO_BIG")
	}
	if route.Path == "/mpub" {
		for _, message := range []string{"BODY_TOO_BIG", "BAD_BODY", "BAD_MESSAGE"} {
			add(http.StatusRequestEntityTooLarge, message)
		}
	}
	if route.Right != access.Open {
		add(http.StatusUnauthorized, "UNAUTHORIZED")
		add(http.StatusForbidden, "FORBIDDEN")
		add(http.StatusTooManyRequests, "TOO_MANY_BAD_LOGINS")
		add(http.StatusServiceUnavailable, "AUTH_UNAVAILABLE")
	}
	for status, messages := range codes {
		answers[fmt.Sprint(status)] = map[string]any{
			"description": strings.Join(messages, "; "),
			"content":     map[string]any{"application/json": map[string]any{"schema": map[string]any{"$ref": "#/components/schemas/Error"}}},
		}
	}
	return answers
}

func messageOf(row outcome.Row) string {
	if row.HTTP.Message != "" {
		return row.HTTP.Message
	}
	return row.Err.Error()
}

var parts = regexp.MustCompile(`[/:._-]+`)

// operationOf describes one route.
func operationOf(rule httpapi.Route, ports []string, s schemas) operation {
	name := strings.Trim(parts.ReplaceAllString(rule.Path, "-"), "-")
	if strings.HasSuffix(rule.Path, "/") {
		name += "-index"
	}
	o := operation{OperationID: strings.ToLower(rule.Method) + "-" + name, Tags: ports, Summary: rule.Summary, Responses: responses(rule, s)}
	var description []string
	if right := words(rule); right != "" {
		description = append(description, right)
	} else {
		o.Security = []map[string][]string{{}}
	}
	if rule.Audited {
		description = append(description, "Is audited.")
	}
	o.Description = strings.Join(description, " ")
	if strings.Contains(rule.Path, ":opt") {
		o.Parameters = append(o.Parameters, parameter{Name: "opt", In: "path", Required: true, Schema: map[string]any{"type": "string"}})
	}
	for _, a := range rule.Arguments {
		o.Parameters = append(o.Parameters, parameterOf(a))
	}
	if rule.Body != "" {
		o.Body = map[string]any{"required": true, "description": rule.Body, "content": map[string]any{"application/octet-stream": map[string]any{}}}
	}
	return o
}

// openAPIDocument is the whole document.
func openAPIDocument(t *testing.T) []byte {
	t.Helper()
	s := schemas{"Error": map[string]any{"type": "object", "properties": map[string]any{"message": map[string]any{"type": "string"}}, "required": []string{"message"}}}
	d := openAPI{
		OpenAPI:  "3.1.0",
		Info:     map[string]any{"title": "Lockstep", "version": "0.1.0", "description": introduction, "license": map[string]string{"name": "Apache 2.0", "identifier": "Apache-2.0"}},
		Servers:  []map[string]string{{"url": "http://127.0.0.1:4151", "description": "a broker's HTTP port"}},
		Security: []map[string][]string{{"token": {}}, {}},
		Paths:    map[string]map[string]operation{},
	}
	served := map[string][]string{}
	var rules []httpapi.Route
	for _, port := range []string{"broker", "lookup port"} {
		for _, rule := range map[string][]httpapi.Route{"broker": httpapi.Routes(), "lookup port": httpapi.LookupRoutes()}[port] {
			key := rule.Method + " " + rule.Path
			if served[key] == nil {
				rules = append(rules, rule)
			}
			served[key] = append(served[key], port)
			slices.Sort(served[key])
		}
	}
	for _, rule := range rules {
		path := strings.Replace(rule.Path, ":opt", "{opt}", 1)
		if d.Paths[path] == nil {
			d.Paths[path] = map[string]operation{}
		}
		d.Paths[path][strings.ToLower(rule.Method)] = operationOf(rule, served[rule.Method+" "+rule.Path], s)
	}
	d.Components = map[string]any{
		"schemas":         map[string]any(s),
		"securitySchemes": map[string]any{"token": map[string]string{"type": "http", "scheme": "bearer", "description": "the token of a user (nsqctl user create), or a secret of the auth service"}},
	}
	var b bytes.Buffer
	b.WriteString("# Generated from the code: make reference\n")
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	require.NoError(t, e.Encode(d))
	return b.Bytes()
}

// TestOpenAPI: docs/reference/openapi.yaml describes the routes of this build.
func TestOpenAPI(t *testing.T) {
	is := openAPIDocument(t)
	if *rewrite {
		require.NoError(t, os.WriteFile(document, is, 0o644))
	}
	stands, err := os.ReadFile(document)
	require.NoError(t, err)
	was, now := strings.Split(string(stands), "\n"), strings.Split(string(is), "\n")
	for n := range min(len(was), len(now)) { // the whole document would fill the log
		require.Equal(t, now[n], was[n], "line %d: the HTTP API has changed: make reference", n+1)
	}
	require.Len(t, was, len(now), "the HTTP API has changed: make reference")
}

// TestTheRouterTakesWhatIsDocumented asks every route with each of its arguments, and with one that
// it does not have.
func TestTheRouterTakesWhatIsDocumented(t *testing.T) {
	s := newSite(t)
	strict := 0
	for _, rule := range httpapi.LookupRoutes() {
		if !rule.Lenient {
			r := do(s.lookup, rule.Method, rule.Path+"?no_such_argument=1", "m")
			require.Contains(t, text(t, r), `there is no argument \"no_such_argument\"`, rule.Path)
		}
	}
	served := s.full(t)
	for _, rule := range httpapi.Routes() {
		require.NotEmpty(t, rule.Summary, rule.Path)
		names := map[string]bool{}
		for _, a := range rule.Arguments {
			require.False(t, names[a.Name], "%s %s has %s twice", rule.Method, rule.Path, a.Name)
			names[a.Name] = true
		}
		if rule.Lenient {
			continue
		}
		strict++
		refused := text(t, do(served, rule.Method, rule.Path+"?no_such_argument=1", "m"))
		require.Contains(t, refused, `there is no argument \"no_such_argument\"`, rule.Path)
		for _, a := range rule.Arguments {
			require.Contains(t, refused, a.Name, rule.Path)
			require.NotContains(t, text(t, do(served, rule.Method, rule.Path+"?"+a.Name+"=1", "m")), "there is no argument", rule.Path)
		}
	}
	require.Greater(t, strict, 20)
}

// TestRepliesAreDocumented: an answer 200 has the form of its documented type, with no field more.
func TestRepliesAreDocumented(t *testing.T) {
	s := newSite(t)
	served := s.full(t)
	for _, path := range []string{"/topic/create?topic=t", "/channel/create?topic=t&channel=c", "/pub?topic=t"} {
		require.Equal(t, http.StatusOK, do(served, http.MethodPost, path, "m").StatusCode, path)
	}
	seen := 0
	for _, rule := range httpapi.Routes() {
		path := strings.Replace(rule.Path, ":opt", "log_level", 1)
		if strings.HasPrefix(path, "/debug/pprof/") || path == "/metrics" || strings.HasPrefix(path, "/ui") {
			continue // the handlers are of other packages
		}
		r := do(served, rule.Method, path+"?"+queryOf(rule), "info")
		body := text(t, r)
		if r.StatusCode != http.StatusOK {
			continue
		}
		seen++
		switch rule.Reply.(type) {
		case nil:
			require.Empty(t, body, path)
		case string:
			require.NotEmpty(t, body, path)
			require.NotContains(t, r.Header.Get("Content-Type"), "json", path)
		default:
			d := json.NewDecoder(strings.NewReader(body))
			d.DisallowUnknownFields()
			require.NoError(t, d.Decode(reflect.New(reflect.TypeOf(rule.Reply)).Interface()), "%s: %s", path, body)
		}
	}
	require.Greater(t, seen, 25)
}

// planned has a plan without steps.
type planned struct{}

func (planned) Plan(context.Context, api.Operation) (api.Plan, error) { return api.Plan{}, nil }

// full is the handler of a broker with all its parts, for its administrator.
func (s *site) full(t *testing.T) http.Handler {
	t.Helper()
	users, root := someUsers(t)
	log := logrus.New()
	log.SetOutput(io.Discard)
	consumers := consume.New(consume.Options{}, s.cluster, nil)
	t.Cleanup(consumers.Stop)
	h := httpapi.NSQD(httpapi.Options{
		InfoReply: httpapi.InfoReply{Version: "1.3.0", NodeName: "n1"}, Messages: settings.Messages{MaxMsgSize: 100, MaxBodySize: 1000, MaxDeferTimeout: time.Hour}, StartTime: time.Unix(1700000000, 0),
	}, httpapi.Backend{
		Publisher: s.cluster, Stats: s.cluster, Admin: s.cluster, Directory: s.cluster.Directory(), Channels: &askedChannels{},
		Inspector: &replicas{}, Recovery: &replicas{}, Admission: admission.New(admission.Options{}), Planner: planned{}, Console: newConsole(), Config: s.config, Log: log, Metrics: http.NotFoundHandler(),
		Users: users, Guard: guard.New(guard.Options{Users: users, Log: log}), Consumers: consumers, Tracer: traced{},
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+root)
		h.ServeHTTP(w, r)
	})
}

// queryOf has plausible values of the required arguments of a route.
func queryOf(route httpapi.Route) string {
	values := map[string]string{"topic": "t", "channel": "c", "format": "json", "node": "b:1", "order": "true", "to": "earliest", "from": "0", "id": "0123456789abcdef", "partition": "0", "rate": "0", "name": "u", "max_attempts": "3", "user": "u", "cluster": "observe", "partitions": "1", "broker": "n1"}
	var query []string
	for _, a := range route.Arguments {
		if v := values[a.Name]; v != "" && !(a.Name == "topic" && route.Summary == "Give a user rights.") {
			query = append(query, a.Name+"="+v)
		}
	}
	return strings.Join(slices.Sorted(slices.Values(slices.Compact(query))), "&")
}
