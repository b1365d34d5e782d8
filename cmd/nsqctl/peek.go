package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// peekedPage is one answer of GET /v1/topic/peek.
type peekedPage struct {
	Next     uint64          `json:"next"`
	End      uint64          `json:"end"`
	Messages []peekedMessage `json:"messages"`
}

// peekedMessage is one message of it.
type peekedMessage struct {
	ID        string          `json:"id"`
	Partition int             `json:"partition"`
	Sequence  uint64          `json:"sequence"`
	Time      int64           `json:"timestamp"`
	DeliverAt int64           `json:"deliver_at,omitempty"`
	Header    json.RawMessage `json:"header,omitempty"`
	Body      string          `json:"body,omitempty"`
	Bytes     []byte          `json:"body_base64,omitempty"`
}

func newPeek(t *target) *cobra.Command {
	var from string
	var count, partition int
	cmd := &cobra.Command{
		Use:   "peek TOPIC",
		Short: "look at messages without consuming them",
		Long: `peek reads the log of a topic: everything that is retained, whether consumed or
not. No channel notices. --from is earliest, latest, a sequence, or a unix time
in nanoseconds.`,
		Example: `  nsqctl peek orders -n 3
  nsqctl peek orders --partition 2 --from 1500 -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("partition") && partition < 0 {
				return fmt.Errorf("--partition %d: partitions are numbered from 0", partition)
			}
			return peek(cmd, t, args[0], from, partition, count)
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "earliest", "where to begin in each partition")
	f.IntVar(&partition, "partition", -1, "only this partition")
	f.IntVarP(&count, "count", "n", 10, "messages of each partition")
	return cmd
}

func peek(cmd *cobra.Command, t *target, topic, from string, partition, count int) error {
	var v edge.ClusterView
	if err := t.get(cmd.Context(), t.http, "/v1/cluster", nil, &v); err != nil {
		return err
	}
	addresses := map[string]string{}
	for _, b := range v.Brokers {
		addresses[string(b.Name)] = t.api(b)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	found := false
	for _, x := range v.Topics {
		for _, p := range x.Partitions {
			if x.Topic != topic || partition >= 0 && p.Partition != partition {
				continue
			}
			found = true
			if p.Leader == "" {
				return fmt.Errorf("%s/%d has no leader now", topic, p.Partition)
			}
			if err := peekPartition(cmd, t, out, addresses[string(p.Leader)], topic, from, p.Partition, count); err != nil {
				return err
			}
		}
	}
	if !found {
		return fmt.Errorf("no topic %q, or no such partition of it", topic)
	}
	return out.Flush()
}

func peekPartition(cmd *cobra.Command, t *target, out *bufio.Writer, address, topic, from string, partition, count int) error {
	for count > 0 {
		q := url.Values{"topic": {topic}, "partition": {fmt.Sprint(partition)}, "from": {from}, "limit": {fmt.Sprint(count)}}
		var page peekedPage
		if err := t.get(cmd.Context(), address, "/v1/topic/peek", q, &page); err != nil {
			return err
		}
		for i := range page.Messages {
			if err := printPeeked(out, t, &page.Messages[i]); err != nil {
				return err
			}
		}
		count -= len(page.Messages)
		if len(page.Messages) == 0 || page.Next >= page.End {
			return nil
		}
		from = fmt.Sprint(page.Next)
	}
	return nil
}

// printPeeked writes a line of JSON, or of text.
func printPeeked(out *bufio.Writer, t *target, m *peekedMessage) error {
	if t.output == "json" {
		return json.NewEncoder(out).Encode(m)
	}
	text := m.Body
	if m.Bytes != nil {
		text = fmt.Sprintf("%q", m.Bytes)
	}
	delay := ""
	if m.DeliverAt != 0 {
		delay = "  due " + time.Unix(0, m.DeliverAt).Format(time.RFC3339Nano)
	}
	_, err := fmt.Fprintf(out, "%d/%d  %s  %s%s  %s\n", m.Partition, m.Sequence, m.ID, time.Unix(0, m.Time).Format(time.RFC3339Nano), delay, text)
	return err
}
