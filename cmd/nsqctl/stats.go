package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

func newStats(t *cli.Target) *cobra.Command {
	var topic, channel string
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "depth, in-flight and deferred messages and counters, from the leaders; live with --interval",
		Example: `  nsqctl stats --topic orders
  nsqctl stats --interval 1s              # shown again every second, with rates, until Ctrl-C
  nsqctl stats --interval 10s -o json     # a line every ten seconds`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval > 0 {
				return liveStats(cmd, t, topic, channel, interval)
			}
			topics, err := clusterStats(cmd, t, topic, channel)
			if err != nil {
				return err
			}
			if err := cli.Print(cmd, t, topics, func(w io.Writer) { printStats(w, topics, nil) }); err != nil {
				return err
			}
			if slices.ContainsFunc(topics, func(x brokerTopic) bool { return x.Unknown != "" }) {
				return errors.New("incomplete: partitions without a leader that answers are not in these numbers")
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "only this topic")
	cmd.Flags().StringVar(&channel, "channel", "", "only this channel")
	cmd.Flags().DurationVar(&interval, "interval", 0, "repeat after this time, until Ctrl-C")
	return cmd
}

const clearScreen = "\x1b[H\x1b[2J"

// liveStats prints the statistics repeatedly. It continues if a broker does not answer for a moment.
func liveStats(cmd *cobra.Command, t *cli.Target, topic, channel string, interval time.Duration) error {
	out := cmd.OutOrStdout()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var before []brokerTopic
	for {
		topics, err := clusterStats(cmd, t, topic, channel)
		switch {
		case cmd.Context().Err() != nil:
			return nil
		case err != nil:
			fmt.Fprintln(cmd.ErrOrStderr(), "nsqctl:", err)
		case t.Output == "json":
			if err := json.NewEncoder(out).Encode(topics); err != nil {
				return err
			}
		default:
			fmt.Fprintln(out, cli.Mark(cli.IsTerminal(out), clearScreen)+time.Now().Format(time.DateTime))
			if err := cli.Print(cmd, t, nil, func(w io.Writer) { printStats(w, topics, rates(before, topics, interval)) }); err != nil {
				return err
			}
			before = topics
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

// rates returns the messages put per second, by topic and broker. A topic that has moved has none for one interval.
func rates(before, now []brokerTopic, interval time.Duration) map[string]float64 {
	counts := map[string]uint64{}
	for _, x := range before {
		counts[x.key()] = x.MessageCount
	}
	out := map[string]float64{}
	for _, x := range now {
		if n, ok := counts[x.key()]; ok && x.MessageCount >= n {
			out[x.key()] = float64(x.MessageCount-n) / interval.Seconds()
		}
	}
	return out
}

// printStats writes the table; rate may be nil.
func printStats(w io.Writer, topics []brokerTopic, rate map[string]float64) {
	fmt.Fprintln(w, "TOPIC\tCHANNEL\tDEPTH\tIN FLIGHT\tDEFERRED\tREQUEUED\tTIMED OUT\tMESSAGES\tCLIENTS\tPUT/S\tBROKER")
	for _, x := range topics {
		perSecond := ""
		if n, ok := rate[x.key()]; ok {
			perSecond = fmt.Sprintf("%.0f", n)
		}
		if x.Unknown != "" {
			fmt.Fprintf(w, "%s\t\tunknown\t\t\t\t\tunknown\t\t\t%s\n", x.TopicName, x.Unknown)
			continue
		}
		fmt.Fprintf(w, "%s%s\t\t%d\t\t\t\t\t%d\t\t%s\t%s\n", x.TopicName, cli.Mark(x.Paused, " (paused)"), x.Depth, x.MessageCount, perSecond, x.Broker)
		for _, c := range x.Channels {
			marks := cli.Mark(c.Paused, " (paused)") + cli.Mark(c.Filter != "", fmt.Sprintf(" (filter: %d passed over)", c.FilteredCount))
			fmt.Fprintf(w, "\t%s%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\t\n", c.ChannelName, marks, c.Depth, c.InFlightCount,
				c.DeferredCount, c.RequeueCount, c.TimeoutCount, c.MessageCount, c.ClientCount)
		}
	}
}

func (x brokerTopic) key() string { return x.Broker + "/" + x.TopicName }

// brokerTopic is a topic's statistics with the broker that reported them.
type brokerTopic struct {
	Broker string `json:"broker"`
	api.TopicStats
	// Unknown is why this entry has no numbers for some partitions: "n2 is dead (2 partitions)".
	Unknown string `json:"unknown,omitempty"`
}

// clusterStats queries every live broker: only leaders report a topic's queues. A topic has
// one more entry for each leader that does not report.
func clusterStats(cmd *cobra.Command, t *cli.Target, topic, channel string) ([]brokerTopic, error) {
	v, err := t.Cluster(cmd.Context())
	if err != nil {
		return nil, err
	}
	var all []brokerTopic
	reports := map[ident.Node]bool{}
	silent := map[ident.Node]string{"": "no leader"} // other leaders are dead
	q := url.Values{"format": {"json"}, "include_clients": {"false"}, "topic": {topic}, "channel": {channel}}
	for _, b := range v.Brokers {
		if !b.Alive {
			continue
		}
		one := t.Client
		one.Addresses = []string{t.Address(b)}
		reported, err := brokerapi.List[api.TopicStats](cmd.Context(), &one, "/stats", q, "topics")
		if err != nil {
			if brokerapi.Status(err) != 0 {
				return nil, fmt.Errorf("%s: %w", b.Name, err)
			}
			silent[b.Name] = fmt.Sprintf("%s: %v", b.Name, err)
			continue
		}
		reports[b.Name] = true
		for _, x := range reported {
			all = append(all, brokerTopic{Broker: string(b.Name), TopicStats: x})
		}
	}
	for _, x := range v.Topics {
		if topic != "" && x.Topic != topic {
			continue
		}
		led := map[string]int{} // reason → partitions
		for _, p := range x.Partitions {
			if !reports[p.Leader] {
				led[cmp.Or(silent[p.Leader], string(p.Leader)+" is dead")]++
			}
		}
		for _, reason := range slices.Sorted(maps.Keys(led)) {
			all = append(all, brokerTopic{TopicStats: api.TopicStats{TopicName: x.Topic},
				Unknown: fmt.Sprintf("%s (%s)", reason, api.Count(led[reason], "partition"))})
		}
	}
	return all, nil
}
