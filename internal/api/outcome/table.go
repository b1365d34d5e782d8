package outcome

import "errors"

// The outcomes of a proposed put.
const (
	// Committed: durable on every member of the maximal ISR.
	Committed Outcome = 1
	// Duplicate: a put with this request id was committed before.
	Duplicate Outcome = 2
	// NotLeader: nothing was written here; the present leader may take the put.
	NotLeader Outcome = 3
	// NotEnoughReplicas: nothing was written; too few ISR members answer.
	NotEnoughReplicas Outcome = 4
	// RolledBack: the put was written and is removed permanently (RB-6).
	RolledBack Outcome = 5
	// InDoubt: the put was written; a later leader may commit it or remove it.
	InDoubt Outcome = 6
	// TopicFull: the core loop refused the put, because the topic has reached a limit.
	TopicFull Outcome = 7
	// DiskFull: the core loop refused the put, because an ISR member is below its disk reserve.
	DiskFull Outcome = 8
	// Repeated: all messages of the put were published before, with the same ids; the first place is the answer.
	Repeated Outcome = 9
	// BelowWindow: the partition does not know the ids of all messages within the dedupe window, so that a message of
	// this put may be stored already. Nothing was written.
	BelowWindow Outcome = 10
	// WindowFull: the dedupe window of the partition has as many ids as are allowed.
	WindowFull Outcome = 11

	lastOutcome = WindowFull
)

// The answers to a put. The texts follow "E_PUB_FAILED PUB failed " on TCP.
var (
	// ErrNotLeader: the broker that was asked does not lead the partition; nothing was written. It is an answer to
	// brokers only.
	ErrNotLeader = errors.New("not the leader")
	// ErrNotEnough: nothing was written. It may be wrapped to add "(1 of 2)".
	ErrNotEnough = errors.New("not enough in-sync replicas, not stored")
	// ErrRolledBack: the put was written and is rolled back permanently.
	ErrRolledBack = errors.New("rolled back, not stored")
	// ErrInDoubt: the put may be stored.
	ErrInDoubt = errors.New("in doubt, may be stored")
	// ErrExiting: the broker is stopping; nothing was stored.
	ErrExiting = errors.New("exiting")
	// ErrNoLeader: no leader could be reached within the put limit; nothing was stored.
	ErrNoLeader = errors.New("no leader, not stored")
	// ErrDiskFull: a replica is below its disk reserve; nothing was stored.
	ErrDiskFull = errors.New("disk reserve reached, not stored")
	// ErrTopicFull: the topic's max_bytes is reached; nothing was stored.
	ErrTopicFull = errors.New("topic is full, not stored")
	// ErrBusy: too many puts wait; nothing was stored.
	ErrBusy = errors.New("too many puts waiting, not stored")
	// ErrTooBig: the put is larger than any batch; nothing was stored.
	ErrTooBig = errors.New("too big, not stored")
	// ErrRateLimited: the publish rate of the user or of the topic is used up at this broker; nothing was stored.
	ErrRateLimited = errors.New("rate limited, not stored")
	// ErrBelowWindow: a put with a message id, and the partition does not know all ids of the dedupe window: the
	// message may have been stored before.
	ErrBelowWindow = errors.New("in doubt, may be stored before: the dedupe window does not reach back")
	// ErrWindowFull: the dedupe window has as many ids as are allowed; nothing was stored.
	ErrWindowFull = errors.New("too many message ids in the dedupe window, not stored")
	// ErrNotReady: the broker does not serve yet; nothing was done. It is wrapped with the reason.
	ErrNotReady = errors.New("not ready")
)

// The answers to FIN, REQ and TOUCH. The texts are NSQ's.
var (
	// ErrNotInFlight: the message is not in flight to the client.
	ErrNotInFlight = errors.New("ID not in flight")
	// ErrNotOwner: the message is in flight to another client.
	ErrNotOwner = errors.New("client does not own message")
)

// The answers to administrative requests.
var (
	// ErrTopicNotFound: there is no such topic, and none may be made.
	ErrTopicNotFound = errors.New("topic not found")
	// ErrChannelNotFound: there is no such channel.
	ErrChannelNotFound = errors.New("channel not found")
	// ErrBrokerNotFound: the cluster has no broker of that name.
	ErrBrokerNotFound = errors.New("broker not found")
	// ErrInvalid: an argument is wrong. It is wrapped with the argument.
	ErrInvalid = errors.New("invalid argument")
	// ErrConflict: the topic or channel exists with other settings. It is wrapped with the effective ones.
	ErrConflict = errors.New("it exists with other settings")
	// ErrFilter: the channel does not have the filter that a client requires. It is wrapped with both.
	ErrFilter = errors.New("the channel does not have the filter")
	// ErrTooManyClients: the channel has as many consumers here as are allowed.
	ErrTooManyClients = errors.New("too many consumers")
	// ErrQuota: the cluster, the topic or the user has as many topics, partitions or channels as are allowed. It is
	// wrapped with the numbers. A put or subscription that would create a topic is answered with it, too.
	ErrQuota = errors.New("quota reached, nothing stored")
	// ErrUnavailable: the cluster cannot do this now. It is wrapped with the part that is missing: the metadata, a
	// leader, brokers.
	ErrUnavailable = errors.New("the cluster cannot do this now")
)

// The labels of puts_total. LabelRefused counts every answer without a label of its own: the topic cannot be made, too
// many puts wait, the broker stops.
const (
	labelOK      = "ok"
	LabelRefused = "refused"
)

// HTTP answers of several rows. The numbers are net/http's: the packages that decide do not import it.
var (
	retryLater = HTTP{Status: 503, RetryAfter: true}
	mayBeThere = HTTP{Status: 504}
	tooFast    = HTTP{Status: 429, RetryAfter: true}
)

// rows is the table; it never changes. An error that wraps several sentinels takes the first row that matches: an
// answer to a put before the reason why the cluster could not give another, ErrUnavailable before the reason that it
// wraps. (Between brokers the lowest code counts: package rpc.)
var rows = []Row{
	{Outcome: Committed, Effect: Commits, Label: labelOK},
	{Outcome: Duplicate, Effect: Commits, Label: labelOK},
	{Outcome: Repeated, Effect: Commits, Label: labelOK},
	{Outcome: NotLeader, Effect: Again, Err: ErrNotLeader, Code: 20, Class: ClassRetryElsewhere, Uses: OfBrokers},
	{Outcome: NotEnoughReplicas, Effect: AgainWhileHeld, Err: ErrNotEnough, Code: 40, Class: ClassRetryHere, Uses: OfPuts, HTTP: retryLater, Label: "not_enough_in_sync"},
	{Outcome: RolledBack, Effect: Refuses, Err: ErrRolledBack, Code: 41, Class: ClassRolledBack, Uses: OfPuts, HTTP: retryLater, Label: "rolled_back"},
	{Outcome: InDoubt, Effect: Doubts, Err: ErrInDoubt, Code: 42, Class: ClassInDoubt, Uses: OfPuts, HTTP: mayBeThere, Label: "in_doubt"},
	{Err: ErrNoLeader, Code: 44, Class: ClassRetryHere, Uses: OfPuts, HTTP: retryLater, Label: "no_leader"},
	{Outcome: DiskFull, Effect: Refuses, Err: ErrDiskFull, Code: 45, Class: ClassRetryHere, Uses: OfPuts, HTTP: retryLater, Label: "disk_full"},
	{Outcome: TopicFull, Effect: Refuses, Err: ErrTopicFull, Code: 46, Class: ClassRetryHere, Uses: OfPuts, HTTP: retryLater, Label: "topic_full"},
	{Err: ErrBusy, Code: 47, Class: ClassRetryHere, Uses: OfPuts, HTTP: retryLater, Label: LabelRefused},
	{Err: ErrTooBig, Code: 48, Class: ClassDefinite, Uses: OfPuts, HTTP: HTTP{Status: 413, Message: "MSG_TOO_BIG"}, Label: LabelRefused},
	{Err: ErrNotReady, Code: 49, Class: ClassRetryElsewhere, Uses: OfPuts, HTTP: retryLater, Label: LabelRefused},
	{Err: ErrRateLimited, Code: 52, Class: ClassRetryHere, Uses: OfPuts | OfRequests, HTTP: tooFast, Label: "rate_limited"},
	{Outcome: BelowWindow, Effect: Refuses, Err: ErrBelowWindow, Code: 53, Class: ClassInDoubt, Uses: OfPuts, HTTP: mayBeThere, Label: "below_window"},
	{Outcome: WindowFull, Effect: Refuses, Err: ErrWindowFull, Code: 54, Class: ClassRetryHere, Uses: OfPuts, HTTP: retryLater, Label: "window_full"},
	{Err: ErrNotInFlight, Code: 50, Class: ClassDefinite, Uses: OfFinishes},
	{Err: ErrNotOwner, Code: 51, Class: ClassDefinite, Uses: OfFinishes},
	{Err: ErrTopicNotFound, Code: 60, Class: ClassDefinite, Uses: OfPuts | OfRequests, HTTP: HTTP{Status: 404, Message: "TOPIC_NOT_FOUND"}, Label: LabelRefused},
	{Err: ErrChannelNotFound, Code: 61, Class: ClassDefinite, Uses: OfRequests, HTTP: HTTP{Status: 404, Message: "CHANNEL_NOT_FOUND"}},
	{Err: ErrBrokerNotFound, Code: 68, Class: ClassDefinite, Uses: OfRequests, HTTP: HTTP{Status: 404, Message: "BROKER_NOT_FOUND"}},
	{Err: ErrInvalid, Code: 62, Class: ClassDefinite, Uses: OfRequests, HTTP: HTTP{Status: 400}},
	{Err: ErrConflict, Code: 65, Class: ClassDefinite, Uses: OfRequests, HTTP: HTTP{Status: 409}},
	{Err: ErrFilter, Code: 67, Class: ClassDefinite, Uses: OfRequests, HTTP: HTTP{Status: 409}},
	{Err: ErrTooManyClients, Code: 63, Class: ClassDefinite, Uses: OfRequests},
	{Err: ErrQuota, Code: 66, Class: ClassDefinite, Uses: OfPuts | OfRequests, HTTP: HTTP{Status: 403}, Label: LabelRefused},
	{Err: ErrUnavailable, Code: 64, Class: ClassRetryHere, Uses: OfPuts | OfRequests, HTTP: retryLater, Label: LabelRefused},
	{Err: ErrExiting, Code: 43, Class: ClassRetryElsewhere, Uses: OfPuts | OfRequests, HTTP: HTTP{Status: 503, Message: "EXITING", RetryAfter: true}, Label: LabelRefused},
}
