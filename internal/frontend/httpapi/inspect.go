package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// defaultPeeked is the number of messages of a peek without ?limit=.
	defaultPeeked = 100
	// recoverTimeout bounds a request to recover a partition.
	recoverTimeout = 5 * time.Second
)

var (
	argsRecovery = []Argument{
		argTopicOnly, numberArg("partition", "the partition"),
		textArg("from", "POST: the broker whose replica becomes the whole in-sync set"),
		textArg("discard", "POST: the broker whose refused replica is given up"),
		textArg("confirm", "POST: TOPIC/PARTITION, because messages are lost"),
	}
	argTopicOnly = textArg("topic", "the topic").must()

	// replicaRoutes show the content of replicas, and recover a partition from one.
	replicaRoutes = []Route{
		get("/v1/topic/peek", access.Consume, (*endpoints).peek,
			"Messages of a topic, consumed or not. Channels are not affected.",
			argTopicOnly, textArg("topic_id", argTopicID.Help), numberArg("partition", "the partition"), textArg("from", api.Places),
			numberArg("limit", "at most this many messages (100)"), textArg("node", "the broker whose replica is read"),
			boolArg("uncommitted", "with node: also the messages beyond its committed end"),
			boolArg("leader", "503 unless the broker serves as the leader: no committed message is missing")).
			replies(api.Peeked{}).fails("INVALID_REQUEST"),
		get("/v1/partition/digest", access.Observe, (*endpoints).digest,
			"Checksums of the batches of a replica on this broker, for nsqctl check.",
			argTopicOnly, numberArg("partition", "the partition").must(), numberArg("from", "the byte offset of the first batch")).
			replies(api.Digest{}).local().fails("INVALID_REQUEST"),
		get("/v1/trace", access.Consume, reading((*request).messageIDs, func(a *endpoints, q *request, ids []api.MessageID) (any, error) {
			return a.b.Tracer.Trace(q.Context(), q.topic(), ids[0])
		}), "The state of one message in the log and in every channel, as its leader has it now.",
			argTopic, argMessageID).replies(api.MessageTrace{}),
		audited(get("/v1/topic/recover", access.AdministerCluster, (*endpoints).recover,
			"The replicas of a partition whose in-sync set is lost.",
			argsRecovery...).replies(api.Remains{}).fails("INVALID_PARTITION")),
		post("/v1/topic/recover", access.AdministerCluster, (*endpoints).recover,
			"Continue with one replica of a partition whose in-sync set is lost: acknowledged messages that it does not have "+
				"are lost.", argsRecovery...).replies(api.Remains{}).fails("INVALID_PARTITION"),
	}
)

func audited(r Route) Route { r.Audited = true; return r }

// line is an answer to nsqctl: JSON and a newline, without the header of the API.
type line struct {
	status int
	body   any
}

func (l line) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(l.status)
	_ = json.NewEncoder(w).Encode(l.body) // the client may have disconnected
}

// decline is a line with an error; detail "": the standard sentence for the code.
func decline(status int, message, detail string) (any, error) {
	return line{status, (&failure{message: message, detail: detail}).body()}, nil
}

// inLine is a line with v, or with err. noTopic is the message if the topic or a broker does not exist; "": the text of err.
func inLine(v any, err error, noTopic string, otherwise int) (any, error) {
	switch {
	case err == nil:
		return line{http.StatusOK, v}, nil
	case errors.Is(err, outcome.ErrTopicNotFound), errors.Is(err, outcome.ErrBrokerNotFound):
		return decline(http.StatusNotFound, cmp.Or(noTopic, err.Error()), "")
	case errors.Is(err, outcome.ErrInvalid):
		otherwise = http.StatusBadRequest
	case errors.Is(err, outcome.ErrUnavailable):
		otherwise = http.StatusServiceUnavailable
	}
	return decline(otherwise, err.Error(), "")
}

// peek lists messages of a replica. With leader=true it answers only if the broker serves as the leader, so that no
// committed message is missing.
func (a *endpoints) peek(q *request) (any, error) {
	partition, err := strconv.ParseUint(cmp.Or(q.text("partition"), "0"), 10, 16)
	limit, err2 := strconv.Atoi(cmp.Or(q.text("limit"), strconv.Itoa(defaultPeeked)))
	uncommitted, err3 := strconv.ParseBool(cmp.Or(q.text("uncommitted"), "0"))
	leader, err4 := strconv.ParseBool(cmp.Or(q.text("leader"), "0"))
	if err = errors.Join(err, err2, err3, err4); err != nil {
		return decline(http.StatusBadRequest, "INVALID_REQUEST",
			"partition and limit must be numbers, uncommitted and leader must be true or false")
	}
	node := ident.Node(q.text("node"))
	if uncommitted && node == "" {
		return decline(http.StatusBadRequest, "uncommitted=true requires node=: each replica has its own end", "")
	}
	if text := q.text("topic_id"); text != "" {
		var id ident.TopicID
		if id.UnmarshalText([]byte(text)) != nil || id == 0 {
			return decline(http.StatusBadRequest, "INVALID_REQUEST", details["INVALID_ARG_TOPIC_ID"])
		}
		if err := a.isTopic(q.topic(), id); err != nil {
			return decline(http.StatusNotFound, err.Error(), "")
		}
	}
	p, err := a.b.Inspector.Peek(q.Context(), api.PeekRequest{
		Topic: q.topic(), Partition: uint16(partition), From: q.text("from"), Limit: limit,
		Node: node, Uncommitted: uncommitted, Leader: leader,
	})
	return inLine(p, err, "", http.StatusInternalServerError)
}

func (a *endpoints) digest(q *request) (any, error) {
	partition, err := strconv.ParseUint(q.text("partition"), 10, 16)
	from, err2 := strconv.ParseInt(cmp.Or(q.text("from"), "0"), 10, 64)
	if err = errors.Join(err, err2); err != nil {
		return decline(http.StatusBadRequest, "INVALID_REQUEST", "partition and from must be numbers")
	}
	d, err := a.b.Inspector.Digest(api.DigestRequest{Topic: q.topic(), Partition: uint16(partition), From: from})
	return inLine(d, err, "TOPIC_NOT_FOUND", http.StatusInternalServerError)
}

// recover lists the replicas of a partition and their state (GET). With from= and confirm=<topic>/<partition> it makes
// the replica of that broker the leader. With discard= and confirm= it discards the replica of that broker, which was
// refused after such a recovery.
func (a *endpoints) recover(q *request) (any, error) {
	ctx, cancel := context.WithTimeout(q.Context(), recoverTimeout)
	defer cancel()
	topic := q.topic()
	partition, err := strconv.Atoi(cmp.Or(q.text("partition"), "0"))
	if err != nil {
		return decline(http.StatusBadRequest, "INVALID_PARTITION", "")
	}
	var found api.Remains
	switch {
	case q.Method == http.MethodGet:
		found, err = a.b.Recovery.Remains(ctx, topic, partition)
	case q.text("confirm") != fmt.Sprintf("%s/%d", topic, partition):
		err = fmt.Errorf("%w: confirm must be %s/%d: messages that were acknowledged are lost", outcome.ErrInvalid, topic, partition)
	case q.text("discard") != "":
		if err = a.b.Recovery.Discard(ctx, topic, partition, ident.Node(q.text("discard"))); err == nil {
			found, err = a.b.Recovery.Remains(ctx, topic, partition)
		}
	default:
		found, err = a.b.Recovery.Recover(ctx, topic, partition, ident.Node(q.text("from")))
	}
	return inLine(found, err, "TOPIC_NOT_FOUND", http.StatusServiceUnavailable)
}
