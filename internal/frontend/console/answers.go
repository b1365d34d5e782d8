package console

import (
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

// Unreachable is a broker whose part is missing in an answer.
type Unreachable struct {
	Broker ident.Node `json:"broker"`
	Reason string     `json:"reason"` // "dead": it is not registered, or does not answer this broker; else the error
}

type worst struct {
	Broker ident.Node `json:"broker"`
	Value  float64    `json:"value"`
}

// alarm is an alarm of package health, with at most maxWhere places.
type alarm struct {
	health.Alarm
	WhereCount int    `json:"where_count"`
	SinceMS    *int64 `json:"since_ms"` // as this broker noticed it; null = within the last step
}

// Traffic has rates a second; null before the second sample.
type Traffic struct {
	Puts       *float64 `json:"puts"`
	PutBytes   *float64 `json:"put_bytes"`
	Deliveries *float64 `json:"deliveries"`
	Finishes   *float64 `json:"finishes"`
	Refusals   *float64 `json:"refusals"` // puts that were not answered OK
}

// Live is a broker's report on itself.
type Live struct {
	StartedMS int64 `json:"started_ms"`
	Traffic
	PutP99MS      *float64 `json:"put_p99_ms"` // null without a put in the last step
	SyncP99MS     *float64 `json:"sync_p99_ms"`
	Connections   int      `json:"connections"`
	Consumers     int      `json:"consumers"`
	Producers     int      `json:"producers"`
	DiskFreeBytes *int64   `json:"disk_free_bytes"`
	DiskDataBytes int64    `json:"disk_data_bytes"`
	Etcd          string   `json:"etcd"` // leader, member or none
	// Refused counts the puts of its clients that were not answered OK since it started, by answer (the label of
	// lockstep_puts_total). Answers that no client received are not included.
	Refused map[string]float64 `json:"refused"`
	// Owes is, by broker, the longest time in seconds for which a replica there owed this broker, its leader, an
	// acknowledgement during the last step or since then.
	Owes map[ident.Node]float64 `json:"owes"`
	health.Own
}

// Broker is one broker: the metadata about it, and its own report if it has answered.
type Broker struct {
	api.BrokerView
	Self        bool `json:"self"`
	Controller  bool `json:"controller"`
	Unreachable bool `json:"unreachable,omitempty"` // it is registered, but does not answer the broker that was queried
	Leads       int  `json:"leads"`
	Replicas    int  `json:"replicas"`
	Answered    bool `json:"answered"`
	// BehindSeconds is the longest time for which the broker's replicas owed an acknowledgement to other leaders. If a replica
	// was in sync, publishes waited for it that long. null: the broker follows no leader that answers.
	BehindSeconds *float64 `json:"behind_seconds"`
	*Live
}

// Brokers lists the brokers.
type Brokers struct {
	Unreachable []Unreachable `json:"unreachable"`
	Brokers     []Broker      `json:"brokers"`
}

// publishing reports whether clients can publish through the broker that answers.
type publishing struct {
	State health.State `json:"state"`
	Text  string       `json:"text"`
}

// Overview is the cluster in one answer.
type Overview struct {
	Cluster         string        `json:"cluster"`
	Self            ident.Node    `json:"self"`
	Controller      ident.Node    `json:"controller"`
	TimeMS          int64         `json:"time_ms"`
	State           health.State  `json:"state"`
	Summary         string        `json:"summary"`
	Cause           string        `json:"cause"`
	Reported        string        `json:"reported,omitempty"` // a broker's report of its own fault, if the fault explains an alarm
	Publishing      publishing    `json:"publishing"`
	Alarms          []alarm       `json:"alarms"`
	Unreachable     []Unreachable `json:"unreachable"`
	Brokers         []Broker      `json:"brokers"`
	Topics          int           `json:"topics"`
	Channels        int           `json:"channels"`
	Partitions      int           `json:"partitions"`
	UnderReplicated int           `json:"under_replicated"`
	Leaderless      int           `json:"leaderless"`
	BelowMinimum    int           `json:"below_minimum"`
	Traffic
	PutP99MS    *worst   `json:"put_p99_ms"`
	SyncP99MS   *worst   `json:"sync_p99_ms"`
	Depth       int64    `json:"depth"`
	InFlight    int64    `json:"in_flight"`
	Deferred    int64    `json:"deferred"`
	Connections int      `json:"connections"`
	Behind      []Behind `json:"behind"`
	Changes     []Event  `json:"changes"`
}

// Topic is a row of the topics.
type Topic struct {
	Topic             string   `json:"topic"`
	Partitions        int      `json:"partitions"`
	ReplicationFactor int      `json:"replication_factor"`
	UnderReplicated   int      `json:"under_replicated"`
	Leaderless        int      `json:"leaderless"`
	Fault             string   `json:"fault,omitempty"`  // the alarm code of the worst fault of its partitions
	Faulty            int      `json:"faulty,omitempty"` // the partitions that have this fault
	Channels          int      `json:"channels"`
	Paused            bool     `json:"paused"`
	Messages          uint64   `json:"messages"`
	Depth             int64    `json:"depth"`
	LagSeconds        float64  `json:"lag_seconds"`
	Puts              *float64 `json:"puts"`
	PutBytes          *float64 `json:"put_bytes"`
	KeptBytes         *float64 `json:"kept_bytes"` // of one copy of its logs, on the disk of each replica
}

// Channel is a row of the channels.
type Channel struct {
	Topic      string   `json:"topic"`
	Channel    string   `json:"channel"`
	Depth      int64    `json:"depth"`
	InFlight   int64    `json:"in_flight"`
	Deferred   int64    `json:"deferred"`
	LagSeconds float64  `json:"lag_seconds"`
	Clients    int      `json:"clients"`
	Paused     bool     `json:"paused"`
	Ordered    bool     `json:"ordered"`
	Finishes   *float64 `json:"finishes"`
	Requeues   uint64   `json:"requeues"`
	Timeouts   uint64   `json:"timeouts"`
}

// Behind is a channel that is behind, with the likely reason.
type Behind struct {
	Channel
	Why string `json:"why"`
}

// Listed describes which rows one page of a list contains.
type Listed struct {
	Total       int           `json:"total"`
	Matched     int           `json:"matched"`
	Offset      int           `json:"offset"`
	Unreachable []Unreachable `json:"unreachable"`
}

// Topics is one page of the topics.
type Topics struct {
	Listed
	Topics []Topic `json:"topics"`
}

// Channels is one page of the channels.
type Channels struct {
	Listed
	Channels []Channel `json:"channels"`
}

// partition is one partition according to the metadata; the ends come from its leader, and are null without its answer.
type partition struct {
	api.PartitionView
	CommittedOffset   *ident.Offset   `json:"committed_offset"`
	CommittedSequence *ident.Sequence `json:"committed_sequence"`
	EndOffset         *ident.Offset   `json:"end_offset"`
	Fault             string          `json:"fault"` // the code of its alarm, "" without one
}

// TopicDetail is one topic.
type TopicDetail struct {
	Topic       Topic             `json:"topic"`
	Settings    api.TopicSettings `json:"settings"`
	Unreachable []Unreachable     `json:"unreachable"`
	Channels    []Channel         `json:"channels"`
	Partitions  []partition       `json:"partitions"`
}

// Oldest is the oldest message that a channel has neither finished nor deferred.
type Oldest struct {
	Partition  int            `json:"partition"`
	Sequence   ident.Sequence `json:"sequence"`
	TimeMS     int64          `json:"time_ms"`
	LagSeconds float64        `json:"lag_seconds"`
}

// channelPart is a channel in one partition.
type channelPart struct {
	Leader ident.Node `json:"leader"`
	api.ChannelPartition
}

// Connection is a client of a channel, at the broker to which it is connected.
type Connection struct {
	Broker ident.Node `json:"broker"`
	api.ConsumerStats
}

// ChannelDetail is one channel.
type ChannelDetail struct {
	Channel         Channel           `json:"channel"`
	Policy          api.ChannelPolicy `json:"policy"`
	Unreachable     []Unreachable     `json:"unreachable"`
	DeadLetterTopic string            `json:"dead_letter_topic"`
	DeadLetters     *int64            `json:"dead_letters"` // in that topic, of all channels that use it; those that were moved back do not count
	Oldest          *Oldest           `json:"oldest"`
	Partitions      []channelPart     `json:"partitions"`
	Connections     []Connection      `json:"connections"`
}

type place struct {
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
}

// BrokerDetail is one broker.
type BrokerDetail struct {
	Broker      Broker        `json:"broker"`
	Unreachable []Unreachable `json:"unreachable"`
	SafeToStop  bool          `json:"safe_to_stop"`
	Reasons     []string      `json:"reasons"` // against stopping it
	Leads       []place       `json:"leads"`
	Follows     []place       `json:"follows"`
	Events      []Event       `json:"events"`
}

// Member is one replica of a partition. Without an answer from its broker it has no sample; a lag that the leader did not report
// is null.
type Member struct {
	Broker ident.Node `json:"broker"`
	InSync bool       `json:"in_sync"`
	Alive  bool       `json:"alive"`
	*api.ReplicaSample
	LagBytes   *int64   `json:"lag_bytes"`
	LagSeconds *float64 `json:"lag_seconds"`
}

// PartitionDetail is one partition.
type PartitionDetail struct {
	Partition   partition     `json:"partition"`
	Topic       string        `json:"topic"`
	Unreachable []Unreachable `json:"unreachable"`
	Members     []Member      `json:"members"`
	Events      []Event       `json:"events"`
}

// Event is one event of the cluster, or the same event of several partitions.
type Event struct {
	TimeMS     int64        `json:"time_ms"`
	Kind       string       `json:"kind"`
	Text       string       `json:"text"`
	State      string       `json:"state"`
	Brokers    []ident.Node `json:"brokers"`
	ReportedBy []ident.Node `json:"reported_by"` // for a change in the metadata, which every broker sees, only some of the brokers
	Topic      string       `json:"topic"`
	Partition  int          `json:"partition"` // -1 = none, or several
	Epoch      ident.Epoch  `json:"epoch,omitempty"`
	InSync     []ident.Node `json:"in_sync,omitempty"`
	Where      []string     `json:"where,omitempty"`
	Count      int          `json:"count"`
	Code       string       `json:"code,omitempty"`
	Do         string       `json:"do,omitempty"`
	Identity   string       `json:"identity,omitempty"`
	Action     string       `json:"action,omitempty"` // of the audit: method and path, or a command, and the arguments
	Remote     string       `json:"remote,omitempty"`
	Result     string       `json:"result,omitempty"`
}

// Events is a list of events, the newest first.
type Events struct {
	Unreachable []Unreachable `json:"unreachable"`
	Complete    bool          `json:"complete"`
	Events      []Event       `json:"events"`
}

// Series is the last hour of one object, or of the cluster.
type Series struct {
	StepSeconds int               `json:"step_seconds"`
	FromMS      int64             `json:"from_ms"`
	ToMS        int64             `json:"to_ms"`
	Unreachable []Unreachable     `json:"unreachable"`
	Kept        bool              `json:"kept"`
	Series      map[string]Points `json:"series"`
}
