package httpapi

import (
	"net/http"
	"slices"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/option"
)

// Description describes a route for its clients. The door takes the names of the arguments from
// here, and docs/reference/openapi.yaml is generated from it.
type Description struct {
	Summary   string
	Arguments []Argument
	// Lenient: other arguments are ignored, as nsqd does. Otherwise they are refused: a mistyped
	// argument would count as missing, and the answer would be 200 without the requested effect.
	Lenient bool
	// Body is the meaning of the body of the request; "": none is read.
	Body string
	// Reply is a value of the type of the answer 200: a string is text, nil is an empty body, anything
	// else is JSON.
	Reply any
	// Uses are the rows of internal/api/outcome that the answer may be.
	Uses outcome.Uses
	// Codes are further messages of the status 400.
	Codes []string
}

// Argument is an argument of the query string.
type Argument struct {
	Name     string
	Kind     Kind
	Help     string
	Required bool
	Repeats  bool
}

// Kind is the form of an argument.
type Kind string

// The kinds of arguments.
const (
	Text         Kind = "string"
	Boolean      Kind = "boolean"  // true or false
	Number       Kind = "integer"  // 0 or more
	Duration     Kind = "duration" // such as 24h or 1m30s
	Milliseconds Kind = "milliseconds"
)

// must returns the argument as a required one.
func (a Argument) must() Argument {
	a.Required = true
	return a
}

func text(name, help string) Argument    { return Argument{Name: name, Kind: Text, Help: help} }
func boolean(name, help string) Argument { return Argument{Name: name, Kind: Boolean, Help: help} }
func number(name, help string) Argument  { return Argument{Name: name, Kind: Number, Help: help} }

func duration(name, help string) Argument { return Argument{Name: name, Kind: Duration, Help: help} }

func milliseconds(name, help string) Argument {
	return Argument{Name: name, Kind: Milliseconds, Help: help}
}

// Arguments of several routes.
var (
	argTopic     = text("topic", "the topic").must()
	argChannel   = text("channel", "the channel").must()
	argPartition = number("partition", "the partition")
	argTopicID   = text("topic_id", "the topic has this id: another one of the name is answered 404")
	argUser      = text("name", "the user").must()
	argNode      = text("node", "the broker").must()
	argsMove     = []Argument{argTopic, argPartition.must(), text("from", "the broker that has the replica").must(), text("to", "the broker that gets it").must()}
	argsPut      = []Argument{
		argTopic,
		milliseconds("defer", "consumers receive the message this much later"),
		text("key", "all puts with one key go to one partition, in their order"),
		duration("ttl", "consumers that have not received the message by then do not receive it"),
	}
	argsReplication = []Argument{
		number("replication_factor", "replicas of each partition"),
		number("min_in_sync", "a put requires this many in-sync replicas"),
	}
	argDurability = text("durability", "sync: OK means synced to disk on all in-sync replicas; replicated: in their memory")
	argTrashed    = text("id", "the id of one deleted topic, as /v1/topic/trash shows it; without it undelete takes the last one of the name, purge all")
	argsNewTopic  = slices.Concat([]Argument{
		argTopic,
		number("partitions", "partitions, 1 or more"),
	}, argsReplication, []Argument{
		boolean("ordered", "each channel receives the messages of a partition one by one, in their order"),
		argDurability,
	}, argsLimits)
	argsSetTopic   = slices.Concat([]Argument{argTopic, argDurability}, argsLimits)
	argsNewChannel = []Argument{
		argTopic, argChannel,
		text("from", "the beginning of a new channel, as to= of /v1/channel/seek: "+api.Places),
		boolean("ordered", "one message of a partition is in flight at a time"),
		text("filter", option.FilterHelp),
	}
	argsRecovery = []Argument{
		argTopic, argPartition,
		text("from", "POST: the broker whose replica is to be the whole in-sync set"),
		text("discard", "POST: the broker whose refused replica is given up"),
		text("confirm", "POST: TOPIC/PARTITION, because messages are lost"),
	}
	argsReceipts = []Argument{
		argTopic, argChannel,
		{Name: "receipt", Kind: Text, Help: "of a message, from /v1/consume; otherwise receipts are in the body", Repeats: true},
	}
	argsGrant = []Argument{
		text("user", "the user").must(),
		text("topic", "a topic, or a pattern: * is any text, ? one character"),
		text("rights", "with topic: publish, consume, administer, separated by commas"),
		text("cluster", "instead of topic: observe or administer"),
	}
)

// argsPage are the arguments of a list with pages.
var argsPage = []Argument{
	text("search", "a part of the name, in capitals or not"), text("sort", "name (default), depth, lag, rate, or disk (topics)"), text("order", "asc or desc; default: asc for names, otherwise desc"),
	number("offset", "leave out this many rows"), number("limit", "at most this many rows, 1 to 500 (50)"),
}

// The answers of JSON that have no type elsewhere.
type (
	topicsReply struct {
		Topics []string `json:"topics"`
	}
	channelsReply struct {
		Channels []string `json:"channels"`
	}
	nodesReply struct {
		Producers []api.NodeEntry `json:"producers"`
	}
	viewsReply struct {
		Channels []api.ChannelView `json:"channels"`
	}
	trashReply struct {
		Topics []api.TrashedTopic `json:"topics"`
	}
	positionsReply struct {
		Positions []api.ChannelPosition `json:"positions"`
	}
	deferredReply struct {
		Messages []api.DeferredMessage `json:"messages"`
	}
	usersReply struct {
		Users []UserView `json:"users"`
	}

	cancelledReply struct {
		Cancelled int `json:"cancelled"`
	}
	redrivenReply struct {
		Redriven int `json:"redriven"`
	}

	statsReply Reply
	received   Received
	refusal    Refusal

	messagesReply struct {
		Messages []received `json:"messages"`
		Refused  []refusal  `json:"refused,omitempty"` // after their 200
	}
	finishedReply struct {
		Finished int `json:"finished"`
	}
	requeuedReply struct {
		Requeued int `json:"requeued"`
	}
	touchedReply struct {
		Touched int `json:"touched"`
	}

	// partitionsReply is the answer to /lookup?metainfo=true.
	partitionsReply struct {
		Channels   []string                `json:"channels"`
		Producers  []api.Producer          `json:"producers"`
		Partitions map[string]api.Producer `json:"partitions"`
		Meta       topicMeta               `json:"meta"`
	}
	topicMeta struct {
		PartitionNum  int  `json:"partition_num"`
		Replica       int  `json:"replica"`
		ExtendSupport bool `json:"extend_support"`
	}
	lookupNodes struct {
		Nodes  []lookupNode `json:"lookupdnodes"`
		Leader lookupNode   `json:"lookupdleader"`
	}
	// lookupNode has the names of the fork's client.
	lookupNode struct {
		ID       string `json:"ID"`
		NodeIP   string `json:"NodeIp"`
		TCPPort  string `json:"TcpPort"`
		HTTPPort string `json:"HttpPort"`
		RPCPort  string `json:"RpcPort"`
		Epoch    int64  `json:"Epoch"`
	}

	lookupReply struct {
		Channels  []string       `json:"channels"`
		Producers []api.Producer `json:"producers"`
	}
)

// Messages that several routes answer with.
var (
	errsNames = []string{"MISSING_ARG_TOPIC", "MISSING_ARG_CHANNEL", "INVALID_ARG_TOPIC", "INVALID_ARG_CHANNEL"}
	badTopic  = []string{"MISSING_ARG_TOPIC", "INVALID_TOPIC"}
	errsTopic = []string{"MISSING_ARG_TOPIC"}

	badReceipts = append([]string{"MISSING_ARG_RECEIPT", "INVALID_ARG_RECEIPT", "BAD_BODY"}, errsNames...)
)

// DescriptionOf is the description of a route.
func DescriptionOf(method, path string) (Description, bool) {
	r, ok := routes[method+" "+path]
	return r, ok
}

// profile is a route of Go's net/http/pprof.
func profile(summary string, arguments ...Argument) Description {
	return Description{Summary: summary, Arguments: arguments, Lenient: true, Reply: ""}
}

// routes describes all routes; it never changes. A route without a row here, or without one in
// rights.go, is not served: the router panics where it is made, in every test.
var routes = map[string]Description{
	http.MethodGet + " /ping":                    {Summary: "Does the broker take messages? 500 with the reason while it cannot store them, 503 while it does not serve yet.", Lenient: true, Reply: ""},
	http.MethodGet + " /healthz":                 {Summary: "Is the process healthy? 500 with the reason while it cannot store messages, 200 while the broker waits for its cluster. HEAD answers without the body.", Lenient: true, Reply: ""},
	http.MethodGet + " /readyz":                  {Summary: "Does the broker serve? 503 with the reason while it does not. HEAD answers without the body.", Lenient: true, Reply: ""},
	http.MethodGet + " /info":                    {Summary: "Version, addresses and limits of the broker. The lookup port answers with the version alone.", Lenient: true, Reply: infoReply{}},
	http.MethodGet + " /metrics":                 {Summary: "All metrics, in the text format of Prometheus.", Lenient: true, Reply: ""},
	http.MethodGet + " /config/:opt":             {Summary: "The value of a setting, by its key in the settings file.", Lenient: true, Reply: any("log_level"), Codes: []string{"INVALID_OPTION"}},
	http.MethodPut + " /config/:opt":             {Summary: "Change log_level or nsqlookupd_tcp_addresses until the next start.", Lenient: true, Body: "the new value: text for log_level, a JSON list for addresses", Reply: any("log_level"), Codes: []string{"INVALID_OPTION", "INVALID_VALUE"}},
	http.MethodGet + " /v1/cluster":              {Summary: "Brokers, topics and partitions of the cluster, with their leaders and replicas.", Reply: api.ClusterView{}},
	http.MethodPost + " /v1/cluster/balance":     {Summary: "Spread replicas and leaderships over the brokers.", Uses: outcome.OfRequests},
	http.MethodGet + " /v1/cluster/invite":       {Summary: "The brokers that may join now.", Reply: InvitationsView{}},
	http.MethodPost + " /v1/cluster/invite":      {Summary: "Let a broker of this name join the running cluster with embedded etcd, for a time.", Arguments: []Argument{argNode, duration("for", "how long (1h), at most 168h"), boolean("withdraw", "end the invitation")}, Reply: Invitation{}, Uses: outcome.OfRequests},
	http.MethodGet + " /v1/partition/digest":     {Summary: "Checksums of the batches of a replica on this broker, for nsqctl check.", Arguments: []Argument{argTopic, argPartition.must(), number("from", "the byte offset of the first batch")}, Reply: api.Digest{}, Codes: []string{"INVALID_REQUEST"}},
	http.MethodGet + " /ui":                      {Summary: "The web console, without data.", Lenient: true, Reply: ""},
	http.MethodGet + " /ui/app.js":               {Summary: "The console's program.", Lenient: true, Reply: ""},
	http.MethodGet + " /ui/app.css":              {Summary: "The console's style.", Lenient: true, Reply: ""},
	http.MethodGet + " /ui/icon.svg":             {Summary: "The console's icon.", Lenient: true, Reply: ""},
	http.MethodGet + " /ui/licences":             {Summary: "The licences of the console's libraries.", Lenient: true, Reply: ""},
	http.MethodPost + " /v1/broker/decommission": {Summary: "Move all replicas of a broker to others.", Arguments: []Argument{argNode, boolean("cancel", "cancel a decommission in progress")}, Uses: outcome.OfRequests},

	http.MethodGet + " /v1/topic/move":          {Summary: "The plan of a move; nothing is changed.", Arguments: argsMove, Reply: api.Plan{}, Uses: outcome.OfRequests, Codes: errsTopic},
	http.MethodGet + " /v1/cluster/balance":     {Summary: "The plan of a balance; nothing is changed.", Reply: api.Plan{}, Uses: outcome.OfRequests},
	http.MethodGet + " /v1/broker/decommission": {Summary: "The plan of a decommission; nothing is changed.", Arguments: []Argument{argNode}, Reply: api.Plan{}, Uses: outcome.OfRequests},
	http.MethodGet + " /v1/broker/drain":        {Summary: "The plan of a drain; nothing is changed.", Arguments: []Argument{argNode, boolean("replicas", "the replicas, too")}, Reply: api.Plan{}, Uses: outcome.OfRequests},
	http.MethodPost + " /v1/broker/drain":       {Summary: "Take the leaderships from a broker, before its maintenance.", Arguments: []Argument{argNode, boolean("replicas", "the replicas, too"), boolean("cancel", "end a drain, finished or in progress")}, Uses: outcome.OfRequests},

	http.MethodGet + " /stats": {
		Summary: "Depths, counts and clients of the queues that this broker leads. The sum over all brokers is the cluster.",
		Arguments: []Argument{
			text("format", "json; otherwise text"), text("topic", "this topic alone"), text("channel", "this channel alone"),
			boolean("include_clients", "false: without clients and producers"), boolean("include_mem", "false: without the figures of the memory"),
		},
		Lenient: true, Reply: statsReply{},
	},

	http.MethodPost + " /pub": {
		Summary: "Publish a message. The header X-Nsq-Headers has the headers of the message: one JSON object of strings.", Arguments: argsPut, Body: "the message", Reply: "OK", Uses: outcome.OfPuts,
		Codes: append([]string{"MSG_EMPTY", "INVALID_DEFER", "INVALID_TTL", "INVALID_HEADERS", "HEADERS_TOO_BIG"}, badTopic...),
	},
	http.MethodPost + " /mpub": {
		Summary:   "Publish several messages: all of them are stored, or none. X-Nsq-Headers has the headers of each, as with /pub.",
		Arguments: slices.Insert(slices.Clone(argsPut), 1, boolean("binary", "the body is the number of messages, and each message behind its size; numbers are 4 bytes, big-endian")),
		Body:      "one message a line, or as binary says", Reply: "OK", Uses: outcome.OfPuts,
		Codes: append([]string{"INVALID_DEFER", "INVALID_TTL", "INVALID_HEADERS", "HEADERS_TOO_BIG"}, badTopic...),
	},

	http.MethodGet + " /v1/trace": {
		Summary:   "The state of one message in the log and in every channel, as its leader has it now.",
		Arguments: []Argument{argTopic, text("id", "the id of the message").must()},
		Reply:     api.MessageTrace{}, Uses: outcome.OfRequests, Codes: []string{"MISSING_ARG_TOPIC", "MISSING_ARG_ID", "INVALID_ARG_ID"},
	},
	http.MethodPost + " /v1/consume": {
		Summary: "Take messages from a channel, each with a receipt. Accept: application/json, multipart/mixed, or text/event-stream for a stream. Guide: docs/guide/consume-with-curl.md.",
		Arguments: []Argument{
			argTopic, argChannel, number("max", "the most messages of the answer (1)"), duration("wait", "how long the request waits for a first message"),
			number("max_in_flight", "the most messages in flight of this client (--max-rdy-count)"), duration("msg_timeout", "the message timeout (--msg-timeout)"),
			text("client", "a name that distinguishes clients of one address"), text("encoding", "base64: also bodies that are text"),
		},
		Reply: messagesReply{}, Uses: outcome.OfRequests, Codes: append([]string{"BODY_NOT_EMPTY"}, errsNames...),
	},
	http.MethodPost + " /v1/finish":  {Summary: "Finish messages by their receipts, at any broker. 409 names the receipts that are refused; the others are done.", Arguments: argsReceipts, Body: "a receipt a line, or a JSON list of receipts", Reply: finishedReply{}, Uses: outcome.OfRequests, Codes: badReceipts},
	http.MethodPost + " /v1/requeue": {Summary: "Give messages back by their receipts. Answers as /v1/finish.", Arguments: append(slices.Clone(argsReceipts), duration("delay", "they come again after this time")), Body: "a receipt a line, or a JSON list of receipts", Reply: requeuedReply{}, Uses: outcome.OfRequests, Codes: badReceipts},
	http.MethodPost + " /v1/touch":   {Summary: "Start the timeouts of messages again by their receipts. Answers as /v1/finish.", Arguments: argsReceipts, Body: "a receipt a line, or a JSON list of receipts", Reply: touchedReply{}, Uses: outcome.OfRequests, Codes: badReceipts},

	http.MethodPost + " /topic/create":    {Summary: "Create a topic. With a setting, or with Accept: application/json, the answer has the effective settings. A topic that exists with other settings than the given ones is refused with 409 and stays as it is. The lookup port answers without a body.", Arguments: argsNewTopic, Reply: api.TopicSettings{}, Uses: outcome.OfRequests, Codes: badTopic},
	http.MethodPost + " /topic/delete":    {Summary: "Delete a topic with its channels and messages. It can be undeleted for the time of --delete-grace. The lookup port deletes nothing.", Arguments: []Argument{argTopic, boolean("now", "true: permanently, at once")}, Lenient: true, Uses: outcome.OfRequests, Codes: errsTopic},
	http.MethodPost + " /topic/empty":     {Summary: "Drop the messages that no channel has been given.", Arguments: []Argument{argTopic}, Lenient: true, Uses: outcome.OfRequests, Codes: badTopic},
	http.MethodPost + " /topic/pause":     {Summary: "Deliver no message of a topic to any channel.", Arguments: []Argument{argTopic}, Lenient: true, Uses: outcome.OfRequests, Codes: errsTopic},
	http.MethodPost + " /topic/unpause":   {Summary: "Deliver again.", Arguments: []Argument{argTopic}, Lenient: true, Uses: outcome.OfRequests, Codes: errsTopic},
	http.MethodPost + " /topic/tombstone": {Summary: "Hide a broker from /lookup of a topic for a while.", Arguments: []Argument{argTopic, text("node", "broadcast address:HTTP port of the broker").must()}, Lenient: true, Uses: outcome.OfRequests, Codes: []string{"MISSING_ARG_TOPIC", "MISSING_ARG_NODE"}},

	http.MethodPost + " /channel/create":   {Summary: "Create a channel: it receives the messages that are published from now on, the first channel of a topic all. The lookup port creates the topic, too.", Arguments: argsNewChannel, Uses: outcome.OfRequests, Codes: errsNames},
	http.MethodPost + " /channel/delete":   {Summary: "Delete a channel. The lookup port deletes nothing.", Arguments: []Argument{argTopic, argChannel}, Lenient: true, Uses: outcome.OfRequests, Codes: errsNames},
	http.MethodPost + " /channel/empty":    {Summary: "Drop the messages of a channel.", Arguments: []Argument{argTopic, argChannel}, Lenient: true, Uses: outcome.OfRequests, Codes: errsNames},
	http.MethodPost + " /channel/pause":    {Summary: "Deliver no message of a channel.", Arguments: []Argument{argTopic, argChannel}, Lenient: true, Uses: outcome.OfRequests, Codes: errsNames},
	http.MethodPost + " /channel/unpause":  {Summary: "Deliver again.", Arguments: []Argument{argTopic, argChannel}, Lenient: true, Uses: outcome.OfRequests, Codes: errsNames},
	http.MethodPost + " /channel/setorder": {Summary: "Make a channel ordered, or unordered.", Arguments: []Argument{argTopic, argChannel, {Name: "order", Kind: Boolean, Help: "true: one message of a partition is in flight at a time", Required: true}}, Uses: outcome.OfRequests, Codes: errsNames},

	http.MethodGet + " /lookup":     {Summary: "The channels of a topic and the brokers that serve it.", Arguments: []Argument{argTopic, boolean("metainfo", "true: also the leader of each partition, and the number of partitions, as clients of the fork require it"), argPartition, text("access", "w or r, of clients of the fork; without effect")}, Lenient: true, Reply: lookupReply{}, Uses: outcome.OfRequests, Codes: errsTopic},
	http.MethodGet + " /listlookup": {Summary: "The addresses of the lookup API, for clients of the fork: every broker.", Lenient: true, Reply: lookupNodes{}},
	http.MethodGet + " /topics":     {Summary: "All topics.", Lenient: true, Reply: topicsReply{}},
	http.MethodGet + " /channels":   {Summary: "The channels of a topic.", Arguments: []Argument{argTopic}, Lenient: true, Reply: channelsReply{}, Codes: errsTopic},
	http.MethodGet + " /nodes":      {Summary: "All brokers, with the topics that each serves.", Lenient: true, Reply: nodesReply{}},
	http.MethodGet + " /debug":      {Summary: "The registrations, as nsqlookupd lists them.", Lenient: true, Reply: map[string][]registration{}},

	http.MethodGet + " /v1/topic/peek": {
		Summary: "Messages of a topic, consumed or not. No channel notices.",
		Arguments: []Argument{
			argTopic, argTopicID, argPartition, text("from", api.Places), number("limit", "at most this many messages (100)"),
			text("node", "the broker whose replica is read"), boolean("uncommitted", "with node: also the messages beyond its committed end"),
			boolean("leader", "503 unless the broker serves as the leader: no committed message is missing"),
		},
		Reply: api.Peeked{}, Uses: outcome.OfRequests, Codes: []string{"INVALID_REQUEST"},
	},
	http.MethodGet + " /v1/topic/channels":  {Summary: "The channels of a topic, with their order and state. Ephemeral channels are in /stats alone.", Arguments: []Argument{argTopic}, Reply: viewsReply{}, Uses: outcome.OfRequests, Codes: errsTopic},
	http.MethodGet + " /v1/topic/positions": {Summary: "How far each durable channel of a topic is, in each partition.", Arguments: []Argument{argTopic}, Reply: positionsReply{}, Uses: outcome.OfRequests, Codes: errsTopic},
	http.MethodPost + " /v1/topic/append": {
		Summary:   "Store messages in one partition, each with its own header, delay and trace id: all of them, or none. The topic must exist. A header with a field ##…, or a delay above --max-defer-timeout, takes the right to administer it.",
		Arguments: []Argument{argTopic, argTopicID, argPartition.must()}, Body: "message records of the export format (docs/reference/export-format.md)", Reply: appended{}, Uses: outcome.OfPuts | outcome.OfRequests,
		Codes: append([]string{"MSG_EMPTY", "INVALID_ARG_PARTITION", "INVALID_ARG_TOPIC_ID"}, badTopic...),
	},
	http.MethodPost + " /v1/topic/undelete":    {Summary: "Bring a deleted topic back within its grace, with its messages and channels. Refused while another topic has the name.", Arguments: []Argument{argTopic, argTrashed}, Uses: outcome.OfRequests, Codes: errsTopic},
	http.MethodPost + " /v1/topic/purge":       {Summary: "Remove deleted topics of a name permanently, before their grace period ends.", Arguments: []Argument{argTopic, argTrashed}, Uses: outcome.OfRequests, Codes: errsTopic},
	http.MethodGet + " /v1/topic/trash":        {Summary: "The deleted topics that can be undeleted, the one that was deleted first first.", Arguments: []Argument{text("topic", "those of this name alone")}, Reply: trashReply{}, Uses: outcome.OfRequests},
	http.MethodGet + " /v1/cluster/limits":     {Summary: "The limits of the cluster on topics, partitions and channels, beside their use.", Reply: api.LimitsView{}, Uses: outcome.OfRequests},
	http.MethodPost + " /v1/topic/move":        {Summary: "Move a replica of a partition to another broker.", Arguments: argsMove, Uses: outcome.OfRequests, Codes: errsTopic},
	http.MethodPost + " /v1/topic/set":         {Summary: "Change limits of a topic, and its durability. Other settings stay as they are. The answer has the effective settings.", Arguments: argsSetTopic, Reply: api.TopicSettings{}, Uses: outcome.OfRequests, Codes: errsTopic},
	http.MethodPost + " /v1/topic/partitions":  {Summary: "Raise the number of partitions of a topic.", Arguments: []Argument{argTopic, number("partitions", "the new number").must(), boolean("reorder", "also of an ordered topic, or one that recognises content: keys and contents may go to other partitions from then on")}, Uses: outcome.OfRequests, Codes: errsTopic},
	http.MethodPost + " /v1/topic/replication": {Summary: "Change the number of replicas of a topic.", Arguments: append([]Argument{argTopic}, argsReplication...), Uses: outcome.OfRequests, Codes: errsTopic},
	http.MethodGet + " /v1/topic/recover":      {Summary: "The replicas of a partition whose in-sync set is lost.", Arguments: argsRecovery, Reply: api.Remains{}, Uses: outcome.OfRequests, Codes: []string{"INVALID_PARTITION"}},
	http.MethodPost + " /v1/topic/recover":     {Summary: "Go on with one replica of a partition whose in-sync set is lost: acknowledged messages that it does not have are lost.", Arguments: argsRecovery, Reply: api.Remains{}, Uses: outcome.OfRequests, Codes: []string{"INVALID_PARTITION"}},

	http.MethodPost + " /v1/channel/seek": {
		Summary:   "Move a channel, so that it delivers messages again or skips them. A sequence beyond the end of a partition, or a time in the future, is refused: nothing is moved in any partition.",
		Arguments: []Argument{argTopic, argChannel, text("to", api.Places).must(), number("partition", "this partition alone"), boolean("dry_run", "move nothing, and answer with what the move would skip and repeat")},
		Reply:     api.SeekResult{}, Uses: outcome.OfRequests, Codes: errsNames,
	},
	http.MethodPost + " /v1/channel/finish": {
		Summary: "Finish messages of one partition for a channel without consumers, because another channel has finished their originals; nsqctl mirror and import use it. The channel never moves back. Messages that it has delivered and deferred stay.",
		Arguments: []Argument{
			argTopic, argTopicID.must(), argChannel, argPartition.must(),
			{Name: "span", Kind: Text, Help: "FROM-END: the sequences FROM to END-1", Required: true, Repeats: true},
		},
		Reply: api.FinishedElsewhere{}, Uses: outcome.OfRequests, Codes: append([]string{"INVALID_ARG_PARTITION", "INVALID_ARG_TOPIC_ID"}, errsNames...),
	},
	http.MethodPost + " /v1/channel/policy": {
		Summary:   "Change the treatment of messages that fail, and the filter. A missing part stays, an empty one is cleared.",
		Arguments: slices.Concat([]Argument{argTopic, argChannel}, describeOptions(option.Policies)),
		Uses:      outcome.OfRequests, Codes: errsNames,
	},
	http.MethodGet + " /v1/channel/policy":           {Summary: "The treatment of messages that fail, and the filter.", Arguments: []Argument{argTopic, argChannel}, Reply: api.ChannelPolicy{}, Uses: outcome.OfRequests, Codes: errsNames},
	http.MethodGet + " /v1/channel/deferred":         {Summary: "Messages that wait for their time, by deadline.", Arguments: []Argument{argTopic, argChannel, number("limit", "at most this many (1000)")}, Reply: deferredReply{}, Uses: outcome.OfRequests, Codes: append([]string{"INVALID_ARG_LIMIT"}, errsNames...)},
	http.MethodPost + " /v1/channel/deferred/cancel": {Summary: "Finish messages that wait for their time.", Arguments: []Argument{argTopic, argChannel, {Name: "id", Kind: Text, Help: "the id of a message", Required: true, Repeats: true}}, Reply: cancelledReply{}, Uses: outcome.OfRequests, Codes: append([]string{"MISSING_ARG_ID", "INVALID_ARG_ID"}, errsNames...)},
	http.MethodPost + " /v1/channel/redrive":         {Summary: "Move messages back from the dead-letter topic to the channel.", Arguments: []Argument{argTopic, argChannel, number("limit", "at most this many (1000)")}, Reply: redrivenReply{}, Uses: outcome.OfRequests, Codes: append([]string{"INVALID_ARG_LIMIT"}, errsNames...)},

	http.MethodPost + " /v1/user/create": {Summary: "Create a user. The first administrator takes the secret in the file first-admin.token of the broker's data path, as the bearer token. The answer has the token, once.", Arguments: []Argument{argUser, boolean("admin", "the user may do everything"), boolean("certificate", "the user logs in with a client certificate of this name")}, Reply: NewToken{}, Uses: outcome.OfRequests},
	http.MethodPost + " /v1/user/rotate": {Summary: "Give a user a new token.", Arguments: []Argument{argUser}, Reply: NewToken{}, Uses: outcome.OfRequests},
	http.MethodPost + " /v1/user/delete": {Summary: "Delete a user.", Arguments: []Argument{argUser}, Uses: outcome.OfRequests},
	http.MethodPost + " /v1/user/quota": {
		Summary: "Change the quota of a user. A missing number stays, 0 is no limit. By default a user that does not administer the cluster may create 1,000 topics, 10,000 partitions and 10,000 channels.",
		Arguments: []Argument{
			argUser, number("topics", "topics that the user creates"), number("partitions", "their partitions"), number("channels", "channels that the user creates"),
			number("put_rate", "messages a second and broker"), number("put_bytes_rate", "bytes a second and broker"),
		},
		Uses: outcome.OfRequests,
	},
	http.MethodGet + " /v1/user/list":   {Summary: "All users, with their rights, their quotas and their usage.", Reply: usersReply{}, Uses: outcome.OfRequests},
	http.MethodPost + " /v1/acl/grant":  {Summary: "Give a user rights.", Arguments: argsGrant, Uses: outcome.OfRequests, Codes: []string{"EITHER_TOPIC_OR_CLUSTER"}},
	http.MethodPost + " /v1/acl/revoke": {Summary: "Take rights from a user.", Arguments: argsGrant, Uses: outcome.OfRequests, Codes: []string{"EITHER_TOPIC_OR_CLUSTER"}},
	http.MethodGet + " /v1/audit":       {Summary: "The last audited actions at this broker, oldest first.", Reply: AuditView{}},

	http.MethodGet + " /v1/session":         {Summary: "The client of this request, for a page: its identity, and whether it may observe and administer.", Reply: SessionView{}},
	http.MethodPost + " /v1/session":        {Lenient: true, Summary: "Sign in with Authorization: Bearer SECRET. The answer sets a cookie that stands for the secret at this broker for 12 hours; 409 LOGIN_DISABLED while there are no users.", Reply: SessionView{}},
	http.MethodPost + " /v1/session/logout": {Lenient: true, Summary: "End the session of the cookie."},

	http.MethodGet + " /v1/console/overview":  {Summary: "The whole cluster in one answer: is it safe, which broker is the cause, which channels are behind, the changes of the last hour. As all of /v1/console/, any broker answers for all, and names those that gave no answer.", Reply: console.Overview{}},
	http.MethodGet + " /v1/console/brokers":   {Summary: "All brokers, with their rates, latencies, disks and connections.", Reply: console.Brokers{}},
	http.MethodGet + " /v1/console/broker":    {Summary: "A broker: its partitions, its events, and whether it may be stopped now.", Arguments: []Argument{text("broker", "the broker").must()}, Reply: console.BrokerDetail{}, Codes: []string{"MISSING_ARG_BROKER"}},
	http.MethodGet + " /v1/console/topics":    {Summary: "Topics, in pages.", Arguments: argsPage, Reply: console.Topics{}, Uses: outcome.OfRequests},
	http.MethodGet + " /v1/console/topic":     {Summary: "A topic with its channels and partitions.", Arguments: []Argument{argTopic}, Reply: console.TopicDetail{}, Uses: outcome.OfRequests, Codes: errsTopic},
	http.MethodGet + " /v1/console/channels":  {Summary: "Channels, in pages.", Arguments: append([]Argument{text("topic", "channels of this topic alone")}, argsPage...), Reply: console.Channels{}, Uses: outcome.OfRequests},
	http.MethodGet + " /v1/console/channel":   {Summary: "A channel: its clients, its oldest message, and its state in each partition.", Arguments: []Argument{argTopic, argChannel}, Reply: console.ChannelDetail{}, Uses: outcome.OfRequests, Codes: errsNames},
	http.MethodGet + " /v1/console/partition": {Summary: "A partition: its replicas with their ends and lags, and its history.", Arguments: []Argument{argTopic, argPartition.must()}, Reply: console.PartitionDetail{}, Uses: outcome.OfRequests, Codes: []string{"MISSING_ARG_TOPIC", "INVALID_ARG_PARTITION"}},
	http.MethodGet + " /v1/console/events": {
		Summary: "The events of the last 24 hours, the newest first: elections, changes of in-sync sets, alarms, brokers that come and go; for administrators of the cluster also the audit.",
		Arguments: []Argument{
			number("since_ms", "events after this time alone, unix ms"), text("kind", "these kinds alone, separated by commas"), text("topic", "of this topic alone"),
			text("broker", "about this broker alone"), number("limit", "at most this many, 1 to 1000 (200)"),
		},
		Reply: console.Events{}, Uses: outcome.OfRequests,
	},
	http.MethodGet + " /v1/console/series": {
		Summary: "The last hour in steps of ten seconds: of the cluster, a broker, a topic or a channel. null is a point without a value.",
		Arguments: []Argument{
			text("topic", "a topic"), text("channel", "a channel of the topic"), text("broker", "a broker"), number("minutes", "the last minutes, 1 to 60 (60)"),
		},
		Reply: console.Series{}, Uses: outcome.OfRequests,
	},

	http.MethodGet + " /debug/pprof":              profile("The profiles of the process."),
	http.MethodGet + " /debug/pprof/":             profile("The profiles of the process."),
	http.MethodGet + " /debug/pprof/cmdline":      profile("The command line of the process."),
	http.MethodGet + " /debug/pprof/symbol":       profile("Names of functions."),
	http.MethodPost + " /debug/pprof/symbol":      profile("Names of functions."),
	http.MethodGet + " /debug/pprof/profile":      profile("A profile of the processor time.", number("seconds", "its duration")),
	http.MethodGet + " /debug/pprof/heap":         profile("A profile of the memory."),
	http.MethodGet + " /debug/pprof/goroutine":    profile("All goroutines.", number("debug", "2: as text, with their stacks")),
	http.MethodGet + " /debug/pprof/block":        profile("A profile of waiting."),
	http.MethodGet + " /debug/pprof/threadcreate": profile("A profile of threads."),
	http.MethodPut + " /debug/setblockrate":       {Summary: "Record waits for /debug/pprof/block.", Arguments: []Argument{number("rate", "one event for this many ns of waiting; 0: none").must()}, Lenient: true},
	http.MethodPost + " /debug/freememory":        {Summary: "Return memory to the operating system.", Lenient: true},
}
