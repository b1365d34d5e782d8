package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
)

func newPeek(t *cli.Target) *cobra.Command {
	var p peeking
	cmd := &cobra.Command{
		Use:   "peek TOPIC",
		Short: "print messages without consuming them",
		Long: `peek reads the log of a topic: all retained messages, consumed or not. It does not
affect channels. --node reads the replica on one broker. With
--uncommitted that includes messages beyond its committed end, as after an
unclean recovery: no consumer receives them, and they may be removed later.`,
		Example: `  nsqctl peek orders -n 3
  nsqctl peek orders --partition 2 --from 1500 -o json
  nsqctl peek orders --partition 2 --node n1 --uncommitted -n 1000000 -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.Flags().Changed("partition") && p.partition < 0:
				return fmt.Errorf("--partition %d: partitions are numbered from 0", p.partition)
			case p.uncommitted && p.node == "":
				return errors.New("--uncommitted requires --node: each replica has its own end")
			}
			p.topic = args[0]
			var err error
			if p.from, err = cli.Place(p.from); err != nil {
				return err
			}
			return p.run(cmd, t)
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.from, "from", "earliest", "first message of each partition: "+cli.Places)
	f.IntVar(&p.partition, "partition", -1, "only this partition")
	f.IntVarP(&p.count, "count", "n", 10, "messages of each partition")
	f.StringVar(&p.node, "node", "", "read the replica on this broker")
	f.BoolVar(&p.uncommitted, "uncommitted", false, "with --node: include messages beyond its committed end")
	return cmd
}

type peeking struct {
	topic, from, node string
	partition, count  int // partition -1: all
	uncommitted       bool
}

func (p peeking) run(cmd *cobra.Command, t *cli.Target) error {
	_, x, _, err := t.Topic(cmd.Context(), p.topic)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	found := false
	var ends cli.Ends
	for _, part := range x.Partitions {
		if p.partition >= 0 && part.Partition != p.partition {
			continue
		}
		found = true
		if p.node == "" && part.Leader == "" {
			return fmt.Errorf("%s/%d has no leader now; --node reads the replica on one broker", p.topic, part.Partition)
		}
		one := p
		one.partition = part.Partition
		one.node = cmp.Or(p.node, string(part.Leader)) // a follower may lag behind the leader
		if err := one.print(cmd, t, out, &ends); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%w, or no such partition of it", cli.NotFound("topic", p.topic))
	}
	if err := ends.Err(); err != nil {
		return err
	}
	return out.Flush()
}

// print reads one partition. Any broker can answer: it forwards the request to one with a replica.
func (p peeking) print(cmd *cobra.Command, t *cli.Target, out *bufio.Writer, ends *cli.Ends) error {
	for p.count > 0 {
		q := url.Values{"topic": {p.topic}, "partition": {fmt.Sprint(p.partition)}, "from": {p.from}, "limit": {fmt.Sprint(p.count)}}
		if p.node != "" {
			q.Set("node", p.node)
		}
		if p.uncommitted {
			q.Set("uncommitted", "true")
		}
		var page api.Peeked
		if err := t.GetAny(cmd.Context(), "/v1/topic/peek", q, &page); err != nil {
			return err
		}
		ends.Note(p.from, p.partition, uint64(page.End))
		for i := range page.Messages {
			if err := printPeeked(out, t, &page.Messages[i]); err != nil {
				return err
			}
		}
		p.count -= len(page.Messages)
		if len(page.Messages) == 0 || page.Next >= page.End {
			return nil
		}
		p.from = fmt.Sprint(page.Next)
	}
	return nil
}

func printPeeked(out *bufio.Writer, t *cli.Target, m *api.PeekedMessage) error {
	if t.Output == "json" {
		m.Trace, m.HeaderBytes = 0, nil // for copies
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

func newTrace(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace ID --topic TOPIC",
		Short: "show where a message is",
		Long: `trace shows the state of one message, as the leader of its partition has it now: in
the log, and in every channel. Nothing is recorded for it, so it has no history:
it is unknown which consumer finished a message. nsqctl tail,
peek and the client print the id.`,
		Example: `  nsqctl trace 5a10000000000000 --topic orders`,
		RunE:    cli.Show(t, "/v1/trace", printTrace, "topic"),
	}
	cmd.Flags().String("topic", "", "the topic of the message")
	return cli.Required(cmd, "topic")
}

func printTrace(w io.Writer, m api.MessageTrace) {
	fmt.Fprintf(w, "message %s of %s/%d, sequence %d: %s\n", m.ID, m.Topic, m.Partition, m.Sequence, m.State)
	if m.Time != 0 {
		fmt.Fprintf(w, "stored %s, %s\n", instant(m.Time), cli.Count(m.Bytes, "byte"))
	}
	if m.DeliverAt != 0 {
		fmt.Fprintf(w, "due %s\n", instant(m.DeliverAt))
	}
	if len(m.Header) > 0 {
		fmt.Fprintf(w, "header %s\n", api.Printable(string(m.Header)))
	}
	fmt.Fprintf(w, "leader %s, epoch %d, in sync %s of %s\n", m.Leader, m.Epoch, cli.Names(m.ISR), cli.Names(m.Replicas))
	if len(m.Channels) > 0 {
		fmt.Fprintln(w, "CHANNEL\tSTATE\tATTEMPTS\tUNTIL\tCLIENTS")
	}
	for _, c := range m.Channels {
		until := "-"
		if c.Deadline != 0 {
			until = instant(c.Deadline)
		}
		clients := cmp.Or(strings.Join(c.Clients, ","), "-")
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", c.Channel, c.State, c.Attempts, until, clients)
	}
}

func instant(unixNS int64) string { return time.Unix(0, unixNS).Format(time.RFC3339Nano) }
