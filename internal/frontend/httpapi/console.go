package httpapi

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
)

const (
	defaultPage    = 50
	defaultEvents  = 200
	defaultMinutes = 60
)

// consoleRules are the routes of the page for operators. Of the events those of the audit come to
// administrators of the cluster alone.
var consoleRules = []Rule{
	{Method: "GET", Path: "/v1/console/overview", Right: access.Observe},
	{Method: "GET", Path: "/v1/console/brokers", Right: access.Observe},
	{Method: "GET", Path: "/v1/console/broker", Right: access.Observe},
	{Method: "GET", Path: "/v1/console/topics", Right: access.Observe},
	{Method: "GET", Path: "/v1/console/topic", Right: access.Observe},
	{Method: "GET", Path: "/v1/console/channels", Right: access.Observe},
	{Method: "GET", Path: "/v1/console/channel", Right: access.Observe},
	{Method: "GET", Path: "/v1/console/partition", Right: access.Observe},
	{Method: "GET", Path: "/v1/console/events", Right: access.Observe},
	{Method: "GET", Path: "/v1/console/series", Right: access.Observe},
}

// consoleOnly adds the endpoints of /v1/console/.
func (a *endpoints) consoleOnly(get func(string, endpoint)) {
	c := a.b.Console
	if c == nil {
		return
	}
	get("/v1/console/overview", func(r *http.Request) (any, error) { return c.Overview(r.Context()), nil })
	get("/v1/console/brokers", func(r *http.Request) (any, error) { return c.Brokers(r.Context()), nil })
	get("/v1/console/broker", a.consoleBroker)
	get("/v1/console/topics", a.consoleTopics)
	get("/v1/console/topic", a.consoleTopic)
	get("/v1/console/channels", a.consoleChannels)
	get("/v1/console/channel", a.consoleChannel)
	get("/v1/console/partition", a.consolePartition)
	get("/v1/console/events", a.consoleEvents)
	get("/v1/console/series", a.consoleSeries)
}

// found gives the errors of names that do not exist their answers.
func found(reply any, err error) (any, error) {
	switch {
	case errors.Is(err, console.ErrBrokerNotFound):
		return nil, fail(http.StatusNotFound, "BROKER_NOT_FOUND")
	case errors.Is(err, console.ErrPartitionNotFound):
		return nil, fail(http.StatusNotFound, "PARTITION_NOT_FOUND")
	case err != nil:
		return nil, err
	}
	return reply, nil
}

// consoleBroker: GET /v1/console/broker?broker=.
func (a *endpoints) consoleBroker(r *http.Request) (any, error) {
	values, err := query(r)
	if err != nil {
		return nil, err
	}
	name, err := required(values, "broker", "MISSING_ARG_BROKER")
	if err != nil {
		return nil, err
	}
	return found(a.b.Console.Broker(r.Context(), ident.Node(name)))
}

// consoleTopics: GET /v1/console/topics?search=&sort=&order=&offset=&limit=.
func (a *endpoints) consoleTopics(r *http.Request) (any, error) {
	_, page, err := pageOf(r)
	if err != nil {
		return nil, err
	}
	return a.b.Console.Topics(r.Context(), page), nil
}

// consoleTopic: GET /v1/console/topic?topic=.
func (a *endpoints) consoleTopic(r *http.Request) (any, error) {
	topic, _, err := topicOf(r)
	if err != nil {
		return nil, err
	}
	return found(a.b.Console.Topic(r.Context(), topic))
}

// consoleChannels: GET /v1/console/channels?topic=&search=&sort=&order=&offset=&limit=.
func (a *endpoints) consoleChannels(r *http.Request) (any, error) {
	values, page, err := pageOf(r)
	if err != nil {
		return nil, err
	}
	return a.b.Console.Channels(r.Context(), values.Get("topic"), page), nil
}

// consoleChannel: GET /v1/console/channel?topic=&channel=.
func (a *endpoints) consoleChannel(r *http.Request) (any, error) {
	n, err := channelNames(r)
	if err != nil {
		return nil, err
	}
	return found(a.b.Console.Channel(r.Context(), n.topic, n.channel))
}

// consolePartition: GET /v1/console/partition?topic=&partition=.
func (a *endpoints) consolePartition(r *http.Request) (any, error) {
	topic, values, err := topicOf(r)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(values.Get("partition"), 10, 16)
	if err != nil {
		return nil, fail(http.StatusBadRequest, "INVALID_ARG_PARTITION")
	}
	return found(a.b.Console.Partition(r.Context(), topic, uint16(number)))
}

// consoleEvents: GET /v1/console/events?since_ms=&kind=&topic=&broker=&limit=.
func (a *endpoints) consoleEvents(r *http.Request) (any, error) {
	values, err := query(r)
	if err != nil {
		return nil, err
	}
	of := console.EventsOf{Topic: values.Get("topic"), Broker: ident.Node(values.Get("broker")), Audit: a.administers(r)}
	args := arguments{Values: values}
	of.Limit = args.between("limit", 1, console.MaxEvents, defaultEvents)
	if text := values.Get("since_ms"); text != "" {
		if of.SinceMS, err = strconv.ParseInt(text, 10, 64); err != nil {
			args.fail("since_ms must be a time in milliseconds")
		}
	}
	if text := values.Get("kind"); text != "" {
		of.Kinds = strings.Split(text, ",")
		for _, kind := range of.Kinds {
			if !slices.Contains(events.Kinds(), kind) {
				args.fail("there is no kind %q, but: %s", kind, strings.Join(events.Kinds(), ", "))
			}
		}
	}
	if args.err != nil {
		return nil, args.err
	}
	return a.b.Console.Events(r.Context(), of), nil
}

// administers reports whether the client of a request administers the cluster.
func (a *endpoints) administers(r *http.Request) bool {
	if a.b.Guard == nil {
		return true
	}
	s := identityOf(r)
	return s != nil && s.Allow(r.Context(), guard.Need{Right: access.AdministerCluster}) == nil
}

// consoleSeries: GET /v1/console/series?topic=&channel=&broker=&minutes=.
func (a *endpoints) consoleSeries(r *http.Request) (any, error) {
	values, err := query(r)
	if err != nil {
		return nil, err
	}
	args := arguments{Values: values}
	of := console.SeriesOf{
		Topic: values.Get("topic"), Channel: values.Get("channel"), Broker: ident.Node(values.Get("broker")),
		Minutes: args.between("minutes", 1, defaultMinutes, defaultMinutes),
	}
	if of.Channel != "" && of.Topic == "" {
		args.fail("channel requires topic")
	}
	if args.err != nil {
		return nil, args.err
	}
	return found(a.b.Console.Series(r.Context(), of))
}

// pageOf reads which rows of a list are asked for.
func pageOf(r *http.Request) (values url.Values, p console.Page, err error) {
	if values, err = query(r); err != nil {
		return nil, p, err
	}
	args := arguments{Values: values}
	p.Search, p.Sort = values.Get("search"), cmp.Or(values.Get("sort"), "name")
	if !slices.Contains(console.Sorts(), p.Sort) {
		args.fail("sort must be one of %s", strings.Join(console.Sorts(), ", "))
	}
	switch values.Get("order") {
	case "":
		p.Desc = p.Sort != "name"
	case "asc":
	case "desc":
		p.Desc = true
	default:
		args.fail("order must be asc or desc")
	}
	p.Limit = args.between("limit", 1, console.MaxPage, defaultPage)
	p.Offset = args.between("offset", 0, 1<<30, 0)
	return values, p, args.err
}

// between reads a number within bounds.
func (a *arguments) between(name string, least, most, byDefault int) int {
	text := a.Get(name)
	if text == "" {
		return byDefault
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		a.fail("%s must be a number from %d to %d", name, least, most)
	}
	return n
}
