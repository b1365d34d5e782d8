package metrics

// The limit and the kinds that tests compare with.
const (
	DefaultMaxPartitions = defaultMaxPartitions
	KindCounter          = kindCounter
	KindHistogram        = kindHistogram
)
