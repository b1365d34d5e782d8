package httpapi

import (
	"cmp"
	"errors"
	"net/http"
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

var (
	argsPage = []Argument{
		textArg("search", "a part of the name; case is ignored"),
		textArg("sort", "name (default), depth, lag, rate, or disk (topics)"),
		textArg("order", "asc or desc; default: asc for names, otherwise desc"),
		numberArg("offset", "skip this many rows").between(0, 1<<30),
		numberArg("limit", "at most this many rows, 1 to 500 (50)").between(1, console.MaxPage),
	}
	argsEvents = []Argument{
		numberArg("since_ms", "only events after this time, unix ms"), textArg("kind", "only these kinds, separated by commas"),
		textArg("topic", "only events of this topic"), textArg("broker", "only events about this broker"),
		numberArg("limit", "at most this many, 1 to 1000 (200)").between(1, console.MaxEvents),
	}
)

var consoleRoutes = []Route{
	get("/v1/console/overview", access.Observe, func(a *endpoints, q *request) (any, error) {
		return a.b.Console.Overview(q.Context()), nil
	}, "The whole cluster in one answer: is it safe, which broker is the cause, which channels are behind, the changes of the "+
		"last hour. Any broker answers the requests below /v1/console/ for the cluster, and names the brokers that did not respond.").
		replies(console.Overview{}).local(),
	get("/v1/console/brokers", access.Observe, func(a *endpoints, q *request) (any, error) {
		return a.b.Console.Brokers(q.Context()), nil
	}, "All brokers, with their rates, latencies, disks and connections.").replies(console.Brokers{}).local(),
	get("/v1/console/broker", access.Observe, func(a *endpoints, q *request) (any, error) {
		return a.b.Console.Broker(q.Context(), ident.Node(q.text("broker")))
	}, "A broker: its partitions, its events, and whether it may be stopped now.",
		textArg("broker", "the broker").orMissing("MISSING_ARG_BROKER")).
		replies(console.BrokerDetail{}).local(),
	get("/v1/console/topics", access.Observe, reading((*request).page, func(a *endpoints, q *request, page console.Page) (any, error) {
		return a.b.Console.Topics(q.Context(), page), nil
	}),
		"Topics, in pages.", argsPage...).replies(console.Topics{}),
	get("/v1/console/topic", access.Observe, func(a *endpoints, q *request) (any, error) {
		return a.b.Console.Topic(q.Context(), q.topic())
	}, "A topic with its channels and partitions.", argTopic).replies(console.TopicDetail{}),
	get("/v1/console/channels", access.Observe, reading((*request).page, func(a *endpoints, q *request, page console.Page) (any, error) {
		return a.b.Console.Channels(q.Context(), q.topic(), page), nil
	}), "Channels, in pages.",
		append([]Argument{textArg("topic", "only channels of this topic")}, argsPage...)...).replies(console.Channels{}),
	get("/v1/console/channel", access.Observe, func(a *endpoints, q *request) (any, error) {
		return a.b.Console.Channel(q.Context(), q.topic(), q.channel())
	},
		"A channel: its clients, its oldest message, and its state in each partition.",
		argTopicName, argChannel).replies(console.ChannelDetail{}),
	get("/v1/console/partition", access.Observe, reading((*request).partition, (*endpoints).consolePartition),
		"A partition: its replicas with their ends and lags, and its history.",
		argTopic, argPartition).replies(console.PartitionDetail{}),
	get("/v1/console/events", access.Observe, reading(readEvents, (*endpoints).consoleEvents),
		"The events of the last 24 hours, newest first: elections, changes of in-sync sets, alarms, brokers that join or "+
			"leave; for administrators of the cluster also the audit.", argsEvents...).
		replies(console.Events{}),
	get("/v1/console/series", access.Observe, reading(readSeries, func(a *endpoints, q *request, of console.SeriesOf) (any, error) {
		return a.b.Console.Series(q.Context(), of)
	}),
		"The last hour in steps of ten seconds: of the cluster, a broker, a topic or a channel. null is a point without a "+
			"value.", textArg("topic", "a topic"), textArg("channel", "a channel of the topic"),
		textArg("broker", "a broker"), numberArg("minutes", "the last minutes, 1 to 60 (60)").between(1, defaultMinutes)).
		replies(console.Series{}),
}

func (a *endpoints) consolePartition(q *request, partition int) (any, error) {
	reply, err := a.b.Console.Partition(q.Context(), q.topic(), uint16(partition))
	if errors.Is(err, console.ErrPartitionNotFound) {
		err = fail(http.StatusNotFound, "PARTITION_NOT_FOUND")
	}
	return reply, err
}

func readEvents(q *request) console.EventsOf {
	of := console.EventsOf{Topic: q.topic(), Broker: ident.Node(q.text("broker")), Limit: q.number("limit", defaultEvents)}
	if text := q.text("since_ms"); text != "" {
		var err error
		if of.SinceMS, err = strconv.ParseInt(text, 10, 64); err != nil {
			q.reject("since_ms", "must be a time in milliseconds")
		}
	}
	if text := q.text("kind"); text != "" {
		of.Kinds = strings.Split(text, ",")
		for _, kind := range of.Kinds {
			if !slices.Contains(events.Kinds(), kind) {
				q.fail("there is no kind %q, but: %s", kind, strings.Join(events.Kinds(), ", "))
			}
		}
	}
	return of
}

// consoleEvents includes the audit only for an administrator of the cluster.
func (a *endpoints) consoleEvents(q *request, of console.EventsOf) (any, error) {
	of.Audit = allow(q.Request, guard.Need{Right: access.AdministerCluster}) == nil
	return a.b.Console.Events(q.Context(), of), nil
}

func readSeries(q *request) console.SeriesOf {
	of := console.SeriesOf{
		Topic: q.topic(), Channel: q.channel(), Broker: ident.Node(q.text("broker")), Minutes: q.number("minutes", defaultMinutes),
	}
	if of.Channel != "" && of.Topic == "" {
		q.fail("channel requires topic")
	}
	return of
}

func (q *request) page() console.Page {
	p := console.Page{Search: q.text("search"), Sort: cmp.Or(q.text("sort"), "name")}
	if !slices.Contains(console.Sorts(), p.Sort) {
		q.reject("sort", "must be one of "+strings.Join(console.Sorts(), ", "))
	}
	switch q.text("order") {
	case "":
		p.Desc = p.Sort != "name"
	case "asc":
	case "desc":
		p.Desc = true
	default:
		q.reject("order", "must be asc or desc")
	}
	p.Limit, p.Offset = q.number("limit", defaultPage), q.number("offset", 0)
	return p
}
