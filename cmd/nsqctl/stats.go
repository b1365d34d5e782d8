package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/edge"
)

func newStats(t *target) *cobra.Command {
	var topic, channel string
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "depth, in-flight and deferred messages and counters, from the leaders; live with --interval",
		Example: `  nsqctl stats --topic orders
  nsqctl stats --interval 1s              # shown again every second, with rates, until Ctrl-C
  nsqctl stats --interval 10s -o json     # a line every ten seconds`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval > 0 {
				return liveStats(cmd, t, topic, channel, interval)
			}
			topics, err := clusterStats(cmd, t, topic, channel)
			if err != nil {
				return err
			}
			if t.output == "json" {
				return printJSON(cmd.OutOrStdout(), topics)
			}
			return printStats(cmd.OutOrStdout(), topics, nil)
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "only this topic")
	cmd.Flags().StringVar(&channel, "channel", "", "only this channel")
	cmd.Flags().DurationVar(&interval, "interval", 0, "repeat after this time, until Ctrl-C")
	return cmd
}

// clearScreen clears a terminal.
const clearScreen = "\x1b[H\x1b[2J"

// liveStats prints the statistics repeatedly. It goes on if a broker does not answer for a
// moment.
func liveStats(cmd *cobra.Command, t *target, topic, channel string, interval time.Duration) error {
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
		case t.output == "json":
			if err := json.NewEncoder(out).Encode(topics); err != nil {
				return err
			}
		default:
			if isTerminal(out) {
				fmt.Fprint(out, clearScreen)
			}
			fmt.Fprintln(out, time.Now().Format(time.DateTime))
			if err := printStats(out, topics, rates(before, topics, interval)); err != nil {
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

// printJSON writes v indented.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	stat, err := f.Stat()
	return err == nil && stat.Mode()&os.ModeCharDevice != 0
}

// rates returns the messages put per second, by topic and broker. After a topic has moved it
// has no rate for one interval.
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
func printStats(out io.Writer, topics []brokerTopic, rate map[string]float64) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tCHANNEL\tDEPTH\tIN FLIGHT\tDEFERRED\tREQUEUED\tTIMED OUT\tMESSAGES\tCLIENTS\tPUT/S\tBROKER")
	for _, x := range topics {
		perSecond := ""
		if n, ok := rate[x.key()]; ok {
			perSecond = fmt.Sprintf("%.0f", n)
		}
		fmt.Fprintf(w, "%s%s\t\t%d\t\t\t\t\t%d\t\t%s\t%s\n", x.TopicName, pausedMark(x.Paused), x.Depth, x.MessageCount, perSecond, x.Broker)
		for _, c := range x.Channels {
			fmt.Fprintf(w, "\t%s%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\t\n", c.ChannelName, pausedMark(c.Paused), c.Depth, c.InFlightCount,
				c.DeferredCount, c.RequeueCount, c.TimeoutCount, c.MessageCount, c.ClientCount)
		}
	}
	return w.Flush()
}

func pausedMark(paused bool) string {
	if paused {
		return " (paused)"
	}
	return ""
}

func (x brokerTopic) key() string { return x.Broker + "/" + x.TopicName }

// brokerTopic is a topic's statistics with the broker that reported them.
type brokerTopic struct {
	Broker string `json:"broker"`
	edge.TopicStats
}

// clusterStats queries every live broker: only leaders report a topic's queues.
func clusterStats(cmd *cobra.Command, t *target, topic, channel string) ([]brokerTopic, error) {
	var v edge.ClusterView
	if err := t.GetAny(cmd.Context(), "/v1/cluster", nil, &v); err != nil {
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
		if err := t.Get(cmd.Context(), t.Address(b), "/stats", q, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", b.Name, err)
		}
		for _, x := range s.Topics {
			all = append(all, brokerTopic{Broker: string(b.Name), TopicStats: x})
		}
	}
	return all, nil
}
