package clustertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// Get asks the broker at an HTTP address for JSON.
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
func InSync(v edge.TopicView) bool {
	for _, p := range v.Partitions {
		if p.Leader == "" || len(p.ISR) != len(p.Replicas) || len(p.Replicas) != v.ReplicationFactor {
			return false
		}
	}
	return true
}

// Left is what a channel still has to deliver, as one broker's statistics show
// it; not known where none of them is about it.
func Left(topics []edge.TopicStats, channel string) (n int64, known bool) {
	for _, t := range topics {
		for _, c := range t.Channels {
			if c.ChannelName == channel {
				n, known = n+c.Depth+int64(c.InFlightCount)+int64(c.DeferredCount), true
			}
		}
	}
	return n, known
}

// Crash is what a broker's log says of a program that is wrong, "" if nothing.
func Crash(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return "" // it was never started
	}
	for _, sign := range []string{"DATA RACE", "panic: ", "fatal error: "} {
		if at := strings.Index(string(text), sign); at >= 0 {
			return string(text[at:min(len(text), at+3000)])
		}
	}
	return ""
}
