package api

// Usage counts what the quotas of a user limit: topics and channels that the user created and that still exist.
type Usage struct {
	Topics     int `json:"topics"`
	Partitions int `json:"partitions"` // of all its topics, those in the trash included
	Channels   int `json:"channels"`   // durable ones
}

// LimitView is one limit of the cluster beside its use.
type LimitView struct {
	Used  int `json:"used"`
	Limit int `json:"limit"` // 0: none
}

// LimitsView has the limits of the cluster, those of the broker that answers, beside their use.
type LimitsView struct {
	Topics     LimitView `json:"topics"`
	Partitions LimitView `json:"partitions"` // topics in the trash included
	// Channels are the durable ones of one topic; used are those of the topic that has the most of them.
	Channels LimitView `json:"channels_of_a_topic"`
}
