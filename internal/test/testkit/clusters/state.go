package clusters

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/lockstepmq/lockstep/internal/api"
)

// Get requests a path of the broker at an HTTP address and decodes the JSON of its answer.
func Get(client *http.Client, address, path string, into any) error {
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// InSync reports whether each partition of a topic has a leader and all its
// replicas in sync.
func InSync(v api.TopicView) bool {
	for _, p := range v.Partitions {
		if p.Leader == "" || len(p.ISR) != len(p.Replicas) || len(p.Replicas) != v.ReplicationFactor {
			return false
		}
	}
	return true
}

// Left returns the number of messages that a channel has not finished, summed over one
// broker's statistics. It returns known = false if the statistics do not name the channel.
func Left(topics []api.TopicStats, channel string) (n int64, known bool) {
	for _, t := range topics {
		for _, c := range t.Channels {
			if c.ChannelName == channel {
				n, known = n+c.Depth+int64(c.InFlightCount)+int64(c.DeferredCount), true
			}
		}
	}
	return n, known
}

// Crash returns the first panic, fatal error or data race in the log file of a broker, "" if
// there is none.
func Crash(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return "" // the broker was never started
	}
	for _, sign := range []string{"DATA RACE", "panic: ", "fatal error: "} {
		if at := strings.Index(string(text), sign); at >= 0 {
			return string(text[at:min(len(text), at+3000)])
		}
	}
	return ""
}
