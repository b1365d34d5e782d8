package httpapi

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

var (
	argDurability   = textArg("durability", "sync: OK means synced to disk on all in-sync replicas; replicated: in their memory")
	argsReplication = []Argument{
		numberArg("replication_factor", "replicas of each partition").between(1, 0),
		numberArg("min_in_sync", "a put requires this many in-sync replicas").between(1, 0),
	}
	argsNewTopic = slices.Concat([]Argument{
		numberArg("partitions", "partitions, 1 or more").between(1, 0),
	}, argsReplication, []Argument{
		boolArg("ordered", "each channel receives the messages of a partition one by one, in their order"), argDurability,
	}, argsOptions(option.Topics))
	argTrashed = textArg("id", "the id of one deleted topic, as /v1/topic/trash shows it; without it, undelete takes the topic "+
		"of the name that was deleted last, and purge all of them")
	argsMove = []Argument{
		argTopic, numberArg("partition", "the partition").must(), textArg("from", "the broker that has the replica").must(),
		textArg("to", "the broker that gets it").must(),
	}
)

var topicRoutes = []Route{
	post("/topic/create", access.Administer, (*endpoints).createTopic,
		"Create a topic. With a setting, or with Accept: application/json, the answer has the effective settings. If a topic "+
			"with other settings exists, it stays as it is, and the answer is 409. The lookup port answers without a body.",
		append([]Argument{argNewTopic}, argsNewTopic...)...).
		replies(api.TopicSettings{}).atLookup(do(readCreateTopic), append([]Argument{argTopicName}, argsNewTopic...)...),
	post("/topic/delete", access.Administer, do(readDeleteTopic),
		"Delete a topic with its channels and messages. It can be undeleted for the time of --delete-grace. The lookup port "+
			"deletes nothing.", argTopic, boolArg("now", "true: permanently, at once")).
		lenient().atLookup(nothing),
	post("/topic/empty", access.Administer, do(func(q *request) api.Operation { return api.EmptyTopic{Topic: q.topic()} }),
		"Drop the messages that no channel has received.", argNewTopic).lenient(),
	post("/topic/pause", access.Administer, do(pauseTopic(true)),
		"Stop the deliveries of a topic to all channels.", argTopic).lenient(),
	post("/topic/unpause", access.Administer, do(pauseTopic(false)), "Resume the deliveries.", argTopic).lenient(),
	post("/v1/topic/set", access.Administer, (*endpoints).setTopic,
		"Change limits of a topic, and its durability. Other settings stay as they are. The answer has the effective "+
			"settings.", append([]Argument{argTopic, argDurability}, argsOptions(option.Topics)...)...).
		replies(api.TopicSettings{}),
	post("/v1/topic/undelete", access.Administer, do(func(q *request) api.Operation {
		return api.UndeleteTopic{Topic: q.topic(), ID: q.topicID("id")}
	}),
		"Restore a deleted topic within its grace period, with its messages and channels. Refused while another topic has "+
			"the name.", argTopic, argTrashed),
	post("/v1/topic/purge", access.Administer, do(func(q *request) api.Operation {
		return api.PurgeTopic{Topic: q.topic(), ID: q.topicID("id")}
	}), "Remove deleted topics of a name permanently, before their grace period ends.", argTopic, argTrashed),
	get("/v1/topic/trash", access.Observe, (*endpoints).trash, "The deleted topics that can be undeleted, oldest deletion first.",
		textArg("topic", "only topics of this name")).replies(trashReply{}),
	post("/v1/topic/move", access.AdministerCluster, do(readMove),
		"Move a replica of a partition to another broker.", argsMove...),
	post("/v1/topic/partitions", access.AdministerCluster, do(func(q *request) api.Operation {
		return api.SetPartitions{Topic: q.topic(), Partitions: q.number("partitions", 0), Reorder: q.boolean("reorder")}
	}), "Raise the number of partitions of a topic.", argTopic,
		numberArg("partitions", "the new number").between(1, 0).must(),
		boolArg("reorder", "also for a topic that is ordered or recognises content: its keys or contents may go to other partitions")),
	post("/v1/topic/replication", access.AdministerCluster, do(readReplication), "Change the number of replicas of a topic.",
		append([]Argument{argTopic}, argsReplication...)...),
}

func argsOptions[T any](rows []option.Row[T]) (list []Argument) {
	kinds := map[option.Kind]kind{
		option.Duration: Duration, option.Choice: kindText, option.Text: kindText, option.Delays: kindText,
	}
	for _, r := range rows {
		a := numberArg(r.Name, r.Help)
		if k, ok := kinds[r.Kind]; ok {
			a.Kind = k
		}
		list = append(list, a)
	}
	return list
}

// topicOptions reads the options of a topic. An empty argument counts as missing.
func (q *request) topicOptions() (values option.Change[option.Topic]) {
	for i := range option.Topics {
		r := &option.Topics[i]
		if text := q.text(r.Name); text != "" {
			if err := values.Read(r, text); err != nil {
				q.reject(r.Name, err.Error())
			}
		}
	}
	return values
}

func nothing(*endpoints, *request) (any, error) { return nil, nil }

func readCreateTopic(q *request) api.Operation {
	return api.CreateTopic{
		Topic: q.topic(), Ordered: q.choice("ordered"), Partitions: q.number("partitions", 0),
		ReplicationFactor: q.number("replication_factor", 0), MinInSync: q.number("min_in_sync", 0), Durability: q.text("durability"), Options: q.topicOptions(),
	}
}

// createTopic answers a request of NSQ's tools without a body, and any other with the effective settings.
func (a *endpoints) createTopic(q *request) (any, error) {
	if _, err := do(readCreateTopic)(a, q); err != nil {
		return nil, err
	}
	if len(q.values) < 2 && !strings.Contains(q.Header.Get("Accept"), "application/json") {
		return nil, nil
	}
	return a.settings(q.topic()), nil
}

// settings returns the effective settings of a topic; nil: the topic has been deleted.
func (a *endpoints) settings(topic string) any {
	if settings, ok := a.b.Directory.TopicSettings(topic); ok {
		return settings
	}
	return nil
}

func (a *endpoints) setTopic(q *request) (any, error) {
	_, err := do(func(q *request) api.Operation {
		return api.SetTopic{Topic: q.topic(), Durability: q.text("durability"), Options: q.topicOptions()}
	})(a, q)
	if err != nil {
		return nil, err
	}
	return a.settings(q.topic()), nil
}

// acceptOfNSQ is in the Accept header of the requests of NSQ's own tools. nsqadmin carries out an operation by a
// request to every broker that has the topic.
const acceptOfNSQ = "application/vnd.nsq"

func readDeleteTopic(q *request) api.Operation {
	byBroker := strings.Contains(q.Header.Get("Accept"), acceptOfNSQ)
	return api.DeleteTopic{Topic: q.topic(), Now: q.boolean("now"), BrokerByBroker: byBroker}
}

func pauseTopic(paused bool) func(*request) api.Operation {
	return func(q *request) api.Operation { return api.PauseTopic{Topic: q.topic(), Paused: paused} }
}

func readMove(q *request) api.Operation {
	o := api.MoveReplica{Topic: q.topic(), From: ident.Node(q.text("from")), To: ident.Node(q.text("to"))}
	var err error
	if o.Partition, err = strconv.Atoi(q.text("partition")); err != nil {
		o.Partition = -1
	}
	return o
}

func readReplication(q *request) api.Operation {
	factor, minimum := q.number("replication_factor", 0), q.number("min_in_sync", 0)
	return api.SetReplication{Topic: q.topic(), ReplicationFactor: factor, MinInSync: minimum}
}

type trashReply struct {
	Topics []api.TrashedTopic `json:"topics"`
}

func (a *endpoints) trash(q *request) (any, error) {
	topics := a.b.Directory.Trash()
	if name := q.topic(); name != "" {
		topics = slices.DeleteFunc(topics, func(t api.TrashedTopic) bool { return t.Topic != name })
	}
	return trashReply{list(topics)}, nil
}

// list returns an empty list for nil, where null would surprise clients.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
