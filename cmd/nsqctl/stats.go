package main

import (
	"fmt"
	"net/url"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/edge"
)

func newStats(t *target) *cobra.Command {
	var topic, channel string
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "depth, in flight, deferred and counters, summed over the brokers that lead",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			topics, err := clusterStats(cmd, t, topic, channel)
			if err != nil {
				return err
			}
			if t.output == "json" {
				return printJSON(cmd.OutOrStdout(), topics)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "TOPIC\tCHANNEL\tDEPTH\tIN FLIGHT\tDEFERRED\tREQUEUED\tTIMED OUT\tMESSAGES\tCLIENTS\tBROKER")
			for _, x := range topics {
				fmt.Fprintf(w, "%s\t\t%d\t\t\t\t\t%d\t\t%s\n", x.TopicName, x.Depth, x.MessageCount, x.Broker)
				for _, c := range x.Channels {
					fmt.Fprintf(w, "\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", c.ChannelName, c.Depth, c.InFlightCount, c.DeferredCount,
						c.RequeueCount, c.TimeoutCount, c.MessageCount, c.ClientCount)
				}
			}
			return w.Flush()
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "only this topic")
	cmd.Flags().StringVar(&channel, "channel", "", "only this channel")
	return cmd
}

// brokerTopic is a topic's statistics with the broker that reported them.
type brokerTopic struct {
	Broker string `json:"broker"`
	edge.TopicStats
}

// clusterStats asks every live broker: only leaders report a topic's queues.
func clusterStats(cmd *cobra.Command, t *target, topic, channel string) ([]brokerTopic, error) {
	var v edge.ClusterView
	if err := get(cmd.Context(), t.http, "/v1/cluster", nil, &v); err != nil {
		return nil, err
	}
	var all []brokerTopic
	q := url.Values{"format": {"json"}, "include_clients": {"false"}, "topic": {topic}, "channel": {channel}}
	for _, b := range v.Brokers {
		if !b.Alive {
			continue
		}
		var s struct {
			Topics []edge.TopicStats `json:"topics"`
		}
		if err := get(cmd.Context(), b.HTTPAddress, "/stats", q, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
		for _, x := range s.Topics {
			all = append(all, brokerTopic{Broker: string(b.Name), TopicStats: x})
		}
	}
	return all, nil
}
