package outcome

import "errors"

// The outcomes of a proposed put.
const (
	Committed         Outcome = 1  // durable on every member of the maximal ISR
	Duplicate         Outcome = 2  // a put with this request id was committed before
	NotLeader         Outcome = 3  // not written; the current leader may accept the put
	NotEnoughReplicas Outcome = 4  // not written; too few ISR members answer
	RolledBack        Outcome = 5  // written, and permanently removed (RB-6)
	InDoubt           Outcome = 6  // written; a later leader may commit it or remove it
	TopicFull         Outcome = 7  // not written; the topic has reached a limit
	DiskFull          Outcome = 8  // not written; an ISR member is below its disk reserve
	Repeated          Outcome = 9  // all messages were published before, with the same ids; the answer has the position of the first
	BelowWindow       Outcome = 10 // not written; ids of the dedupe window are missing, so a message may already be stored
	WindowFull        Outcome = 11 // not written; the dedupe window has as many ids as are allowed

	lastOutcome = WindowFull
)

// The answers to a put. The texts follow "E_PUB_FAILED PUB failed " on TCP. They state whether anything may be stored.
var (
	ErrNotLeader   = errors.New("not the leader") // for brokers only
	ErrNotEnough   = errors.New("not enough in-sync replicas, not stored")
	ErrRolledBack  = errors.New("rolled back, not stored")
	ErrInDoubt     = errors.New("in doubt, may be stored")
	ErrExiting     = errors.New("exiting")               // nothing is stored
	ErrNoLeader    = errors.New("no leader, not stored") // within the put limit
	ErrDiskFull    = errors.New("disk reserve reached, not stored")
	ErrTopicFull   = errors.New("topic is full, not stored") // by its max_bytes
	ErrBusy        = errors.New("too many puts waiting, not stored")
	ErrTooBig      = errors.New("too big, not stored")      // larger than any batch
	ErrRateLimited = errors.New("rate limited, not stored") // by the user's or the topic's rate at this broker
	ErrBelowWindow = errors.New("in doubt, may be stored before: the dedupe window does not reach back")
	ErrWindowFull  = errors.New("too many message ids in the dedupe window, not stored")
	ErrNotReady    = errors.New("not ready") // the broker does not serve yet; wrapped with the reason
)

// The answers to FIN, REQ and TOUCH. The texts are NSQ's.
var (
	ErrNotInFlight = errors.New("ID not in flight") // to this client
	ErrNotOwner    = errors.New("client does not own message")
)

// The answers to administrative requests, wrapped with details.
var (
	ErrTopicNotFound   = errors.New("topic not found")
	ErrChannelNotFound = errors.New("channel not found")
	ErrBrokerNotFound  = errors.New("broker not found")
	ErrInvalid         = errors.New("invalid argument")
	ErrConflict        = errors.New("it exists with other settings")
	ErrFilter          = errors.New("the channel does not have the filter") // that a client requires
	ErrTooManyClients  = errors.New("too many consumers")                   // of a channel at this broker
	// ErrQuota: the cluster, the topic or the user has reached its limit of topics, partitions or channels. It also
	// answers a put or subscription that would create a topic.
	ErrQuota       = errors.New("quota reached, nothing stored")
	ErrUnavailable = errors.New("the cluster cannot do this now") // wrapped with the cause
)

// The labels of puts_total. LabelRefused counts every answer without a label of its own.
const (
	labelOK      = "ok"
	LabelRefused = "refused"
)

// HTTP answers of several rows. The numbers are net/http's: the packages that decide do not import it.
var (
	retryLater = httpAnswer{Status: 503, RetryAfter: true}
	mayBeThere = httpAnswer{Status: 504}
	tooFast    = httpAnswer{Status: 429, RetryAfter: true}
)

// rows is the table; it never changes. An error that wraps several sentinels takes the first row that matches: an
// answer to a put comes before the reason why the cluster has no better answer, and ErrUnavailable comes before the
// reason that it wraps. (Between brokers the lowest code counts: package rpc.)
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
	{Err: ErrTooBig, Code: 48, Class: ClassDefinite, Uses: OfPuts, HTTP: httpAnswer{Status: 413, Message: "MSG_TOO_BIG"}, Label: LabelRefused},
	{Err: ErrNotReady, Code: 49, Class: ClassRetryElsewhere, Uses: OfPuts, HTTP: retryLater, Label: LabelRefused},
	{Err: ErrRateLimited, Code: 52, Class: ClassRetryHere, Uses: OfPuts | OfRequests, HTTP: tooFast, Label: "rate_limited"},
	{Outcome: BelowWindow, Effect: Refuses, Err: ErrBelowWindow, Code: 53, Class: ClassInDoubt, Uses: OfPuts, HTTP: mayBeThere, Label: "below_window"},
	{Outcome: WindowFull, Effect: Refuses, Err: ErrWindowFull, Code: 54, Class: ClassRetryHere, Uses: OfPuts, HTTP: retryLater, Label: "window_full"},
	{Err: ErrNotInFlight, Code: 50, Class: ClassDefinite, Uses: OfFinishes},
	{Err: ErrNotOwner, Code: 51, Class: ClassDefinite, Uses: OfFinishes},
	{Err: ErrTopicNotFound, Code: 60, Class: ClassDefinite, Uses: OfPuts | OfRequests, HTTP: httpAnswer{Status: 404, Message: "TOPIC_NOT_FOUND"}, Label: LabelRefused},
	{Err: ErrChannelNotFound, Code: 61, Class: ClassDefinite, Uses: OfRequests, HTTP: httpAnswer{Status: 404, Message: "CHANNEL_NOT_FOUND"}},
	{Err: ErrBrokerNotFound, Code: 68, Class: ClassDefinite, Uses: OfRequests, HTTP: httpAnswer{Status: 404, Message: "BROKER_NOT_FOUND"}},
	{Err: ErrInvalid, Code: 62, Class: ClassDefinite, Uses: OfRequests, HTTP: httpAnswer{Status: 400}},
	{Err: ErrConflict, Code: 65, Class: ClassDefinite, Uses: OfRequests, HTTP: httpAnswer{Status: 409}},
	{Err: ErrFilter, Code: 67, Class: ClassDefinite, Uses: OfRequests, HTTP: httpAnswer{Status: 409}},
	{Err: ErrTooManyClients, Code: 63, Class: ClassDefinite, Uses: OfRequests},
	{Err: ErrQuota, Code: 66, Class: ClassDefinite, Uses: OfPuts | OfRequests, HTTP: httpAnswer{Status: 403}, Label: LabelRefused},
	{Err: ErrUnavailable, Code: 64, Class: ClassRetryHere, Uses: OfPuts | OfRequests, HTTP: retryLater, Label: LabelRefused},
	{Err: ErrExiting, Code: 43, Class: ClassRetryElsewhere, Uses: OfPuts | OfRequests, HTTP: httpAnswer{Status: 503, Message: "EXITING", RetryAfter: true}, Label: LabelRefused},
}
