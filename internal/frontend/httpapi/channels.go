package httpapi

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

// defaultListed is how many deferred messages are listed, and how many dead letters are redriven, without ?limit=.
const defaultListed = 1000

var (
	argsNewChannel = []Argument{
		argTopicName, argChannel,
		textArg("from", "the beginning of a new channel, as to= of /v1/channel/seek: "+api.Places),
		boolArg("ordered", "one message of a partition is in flight at a time"),
		textArg("filter", option.FilterHelp),
	}
	argListed = numberArg("limit", "at most this many (1000)").between(1, 0).orElse("INVALID_ARG_LIMIT")
	argsSeek  = []Argument{
		argTopicName, argChannel, textArg("to", api.Places).must(), numberArg("partition", "only this partition"),
		boolArg("dry_run", "move nothing, and answer with what the move would skip and repeat"),
	}
	argsFinish = []Argument{
		argTopicName, argTopicID.must(), argChannel, argPartition,
		{Name: "span", Kind: kindText, Help: "FROM-END: the sequences FROM to END-1", Required: true, Repeats: true},
	}
	argsPolicy   = append([]Argument{argTopicName, argChannel}, argsOptions(option.Policies)...)
	argsMessages = []Argument{argTopicName, argChannel, argMessageID.repeated()}
)

var channelRoutes = []Route{
	post("/channel/create", access.Administer, do(readCreateChannel),
		"Create a channel. It receives the messages that are published from now on; the first channel of a topic receives "+
			"all. The lookup port also creates the topic.", argsNewChannel...).
		atLookup((*endpoints).lookupCreateChannel),
	post("/channel/delete", access.Administer, do(func(q *request) api.Operation {
		return api.DeleteChannel{Topic: q.topic(), Channel: q.channel()}
	}),
		"Delete a channel. The lookup port deletes nothing.", argTopicName, argChannel).lenient().atLookup((*endpoints).lookupDeleteChannel),
	post("/channel/empty", access.Administer, do(func(q *request) api.Operation {
		return api.EmptyChannel{Topic: q.topic(), Channel: q.channel()}
	}), "Drop the messages of a channel.", argTopicName, argChannel).lenient(),
	post("/channel/pause", access.Administer, do(pauseChannel(true)),
		"Stop the deliveries of a channel.", argTopicName, argChannel).lenient(),
	post("/channel/unpause", access.Administer, do(pauseChannel(false)),
		"Resume the deliveries.", argTopicName, argChannel).lenient(),
	post("/channel/setorder", access.Administer, do(readOrder), "Make a channel ordered, or unordered.", argTopicName, argChannel,
		boolArg("order", "true: one message of a partition is in flight at a time").must()),
	alsoNeeds(deadLetters, post("/v1/channel/policy", access.Administer, do(readPolicy),
		"Change the treatment of messages that fail, and "+
			"the filter. A missing part stays, an empty one is cleared.", argsPolicy...)),
	get("/v1/channel/policy", access.Discover, func(a *endpoints, q *request) (any, error) {
		return a.b.Channels.Policy(q.topic(), q.channel())
	}, "The treatment of messages that fail, and the filter.", argTopicName, argChannel).replies(api.ChannelPolicy{}),
	get("/v1/topic/channels", access.Discover, (*endpoints).channelViews, "The channels of a topic, with their order and state. "+
		"Ephemeral channels are only in /stats.", argTopic).replies(viewsReply{}),
	get("/v1/topic/positions", access.Discover, (*endpoints).positions,
		"The position of each durable channel of a topic in each partition.",
		argTopic).replies(positionsReply{}),
	post("/v1/channel/seek", access.Administer, reading(readSeek, func(a *endpoints, q *request, op api.SeekChannel) (any, error) {
		return a.b.Channels.Seek(q.Context(), op)
	}),
		"Move a channel, so that it delivers messages again or skips them. A sequence beyond the end of a partition, or a "+
			"time in the future, is refused: nothing is moved in any partition.",
		argsSeek...).replies(api.SeekResult{}),
	post("/v1/channel/finish", access.Administer, reading(readFinishElsewhere, (*endpoints).finishElsewhere),
		"Finish messages of one partition for a channel without consumers, because another channel has finished their "+
			"originals; nsqctl mirror and import use it. The channel never moves back. Messages that it has delivered or "+
			"deferred stay.", argsFinish...).replies(api.FinishedElsewhere{}),
	get("/v1/channel/deferred", access.Administer, reading((*request).listed, (*endpoints).deferred), "Deferred messages, by deadline.",
		argTopicName, argChannel, argListed).replies(deferredReply{}),
	post("/v1/channel/deferred/cancel", access.Administer, reading((*request).messageIDs, (*endpoints).cancelDeferred),
		"Finish deferred messages.", argsMessages...).
		replies(cancelledReply{}),
	post("/v1/channel/redrive", access.Administer, reading((*request).listed, (*endpoints).redrive),
		"Move messages back from the dead-letter topic to the channel.",
		argTopicName, argChannel, argListed).replies(redrivenReply{}),
}

func alsoNeeds(also func(url.Values) []guard.Need, r Route) Route { r.also = also; return r }

// deadLetters: messages of a channel go to the topic that its policy names, so the client that sets it needs the right
// to publish there.
func deadLetters(values url.Values) []guard.Need {
	if topic := values.Get("dead_letter_topic"); topic != "" {
		return []guard.Need{{Right: access.Publish, Topic: topic}}
	}
	return nil
}

type (
	viewsReply struct {
		Channels []api.ChannelView `json:"channels"`
	}
	positionsReply struct {
		Positions []api.ChannelPosition `json:"positions"`
	}
	deferredReply struct {
		Messages []api.DeferredMessage `json:"messages"`
	}
	cancelledReply struct {
		Cancelled int `json:"cancelled"`
	}
	redrivenReply struct {
		Redriven int `json:"redriven"`
	}
)

func readCreateChannel(q *request) api.Operation {
	return api.CreateChannel{
		Topic: q.topic(), Channel: q.channel(), From: q.text("from"), Filter: q.text("filter"), Ordered: q.choice("ordered"),
	}
}

func pauseChannel(paused bool) func(*request) api.Operation {
	return func(q *request) api.Operation {
		return api.PauseChannel{Topic: q.topic(), Channel: q.channel(), Paused: paused}
	}
}

func readOrder(q *request) api.Operation {
	ordered := q.choice("order")
	if ordered == nil {
		q.reject("order", "must be true or false")
		return nil
	}
	return api.OrderChannel{Topic: q.topic(), Channel: q.channel(), Ordered: *ordered}
}

// readPolicy reads a change of a policy. An empty argument clears its part.
func readPolicy(q *request) api.Operation {
	o := api.SetPolicy{Topic: q.topic(), Channel: q.channel()}
	for i := range option.Policies {
		if r := &option.Policies[i]; q.has(r.Name) {
			if err := o.Policy.Read(r, q.text(r.Name)); err != nil {
				q.reject(r.Name, err.Error())
			}
		}
	}
	return o
}

func (a *endpoints) channelViews(q *request) (any, error) {
	views, err := a.b.Channels.ChannelViews(q.topic())
	return viewsReply{list(views)}, err
}

func (a *endpoints) positions(q *request) (any, error) {
	all, err := a.b.Channels.Positions(q.Context(), q.topic())
	return positionsReply{list(all)}, err
}

func readSeek(q *request) api.SeekChannel {
	op := api.SeekChannel{Topic: q.topic(), Channel: q.channel(), To: q.text("to")}
	if op.To == "" {
		q.reject("to", "must be earliest, latest, a time or a sequence")
	}
	op.Partition, op.DryRun = q.partition(), q.boolean("dry_run")
	return op
}

func readFinishElsewhere(q *request) api.FinishElsewhere {
	op := api.FinishElsewhere{Topic: q.topic(), Channel: q.channel(), Partition: q.partition(), TopicID: q.topicID("topic_id")}
	for _, text := range q.values["span"] {
		first, end, _ := strings.Cut(text, "-")
		from, err := strconv.ParseUint(first, 10, 63)
		to, err2 := strconv.ParseUint(end, 10, 63)
		if err != nil || err2 != nil || from >= to {
			q.reject("span", "must be FROM-END, the first sequence and the one behind the last")
		}
		op.Spans = append(op.Spans, api.SequenceSpan{From: ident.Sequence(from), To: ident.Sequence(to)})
	}
	if len(op.Spans) == 0 {
		q.reject("span", "must be FROM-END, and is missing")
	}
	return op
}

func (a *endpoints) finishElsewhere(q *request, op api.FinishElsewhere) (any, error) {
	return a.b.Channels.FinishElsewhere(q.Context(), op)
}

func (q *request) listed() int { return q.number("limit", defaultListed) }

func (a *endpoints) deferred(q *request, limit int) (any, error) {
	all, err := a.b.Channels.Deferred(q.Context(), q.topic(), q.channel(), limit)
	return deferredReply{all}, err
}

func (a *endpoints) cancelDeferred(q *request, ids []api.MessageID) (any, error) {
	cancelled, err := a.b.Channels.CancelDeferred(q.Context(), q.topic(), q.channel(), ids)
	return cancelledReply{cancelled}, err
}

// redrive answers with the number of redriven messages, even after an error.
func (a *endpoints) redrive(q *request, limit int) (any, error) {
	need := guard.Need{Right: access.Administer, Topic: q.topic()}
	ctx, end := identityOf(q.Request).While(q.Context(), need) // it may take long
	defer end()
	moved, err := a.b.Channels.Redrive(ctx, q.topic(), q.channel(), limit)
	if err = guard.Lost(ctx, err); err != nil && moved > 0 {
		return nil, unavailable(fmt.Sprintf("%d were redriven, then: %s", moved, err))
	}
	return redrivenReply{moved}, err
}

// lookupCreateChannel also creates the topic, as nsqlookupd does.
func (a *endpoints) lookupCreateChannel(q *request) (any, error) {
	op := readCreateChannel(q)
	if q.err != nil {
		return nil, q.err
	}
	if err := a.b.Admin.Do(q.Context(), api.CreateTopic{Topic: q.topic()}); err != nil {
		return nil, err
	}
	return nil, a.b.Admin.Do(q.Context(), op)
}

// lookupDeleteChannel deletes nothing; see the package comment.
func (a *endpoints) lookupDeleteChannel(q *request) (any, error) {
	if !slices.Contains(a.b.Directory.Channels(q.topic()), q.channel()) {
		return nil, outcome.ErrChannelNotFound
	}
	return nil, nil
}
