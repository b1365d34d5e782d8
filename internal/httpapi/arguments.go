package httpapi

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// The arguments of the endpoints beyond NSQ. These endpoints refuse a mistyped argument;
// otherwise it would count as missing, and the answer would be 200 without the requested
// effect. Endpoints of NSQ alone ignore unknown arguments, as nsqd does.
var (
	putArguments           = []string{"topic", "defer", "key", "ttl"}
	multiPutArguments      = []string{"topic", "binary", "defer", "key", "ttl"}
	createTopicArguments   = []string{"topic", "partitions", "replication_factor", "min_in_sync", "ordered", "durability", "retention_time", "retention_bytes", "max_bytes", "message_ttl", "max_put_rate", "max_put_bytes_rate"}
	createChannelArguments = []string{"topic", "channel", "from", "ordered", "filter"}
	quotaArguments         = []string{"name", "topics", "partitions", "channels", "put_rate", "put_bytes_rate"}
	policyArguments        = []string{"topic", "channel", "max_attempts", "dead_letter_topic", "retry_backoff", "filter"}
	peekArguments          = []string{"topic", "partition", "from", "limit", "node", "uncommitted"}
	digestArguments        = []string{"topic", "partition", "from"}
	recoverArguments       = []string{"topic", "partition", "from", "discard", "confirm"}
)

// takes returns an endpoint that refuses all arguments but the named ones.
func takes(e endpoint, names ...string) endpoint {
	return func(r *http.Request) (any, error) {
		values, err := query(r)
		if err == nil {
			err = refuseUnknown(values, names)
		}
		if err != nil {
			return nil, err
		}
		return e(r)
	}
}

// refuseUnknown returns an error for the first argument that is not in names.
func refuseUnknown(values url.Values, names []string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%w: there is no argument %q, but: %s", edge.ErrInvalid, name, cmp.Or(strings.Join(names, ", "), "none"))
		}
	}
	return nil
}
