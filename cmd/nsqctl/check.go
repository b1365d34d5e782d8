package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

type finding struct {
	Topic     string   `json:"topic"`
	Partition int      `json:"partition"`
	Compared  int64    `json:"compared_bytes"`
	Replicas  []string `json:"replicas"`
	Equal     bool     `json:"equal"`
	Problem   string   `json:"problem,omitempty"`
}

func newCheck(t *cli.Target) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "check TOPIC",
		Short: "compare the replicas of a topic batch by batch",
		Long: `check reads every live replica, batch by batch, up to the newest committed end that a replica has when
check begins, and prints the first difference. Messages published after that do not count. Exit code 0: all replicas are
present and equal; 6: a difference, or a replica that is missing or behind.`,
		Example: `  nsqctl check orders
  nsqctl check orders --wait 1m -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			deadline, ends := time.Now().Add(wait), map[int]int64{}
			for {
				found, err := compareTopic(cmd.Context(), t, args[0], ends)
				if err != nil {
					return err
				}
				good := !slices.ContainsFunc(found, func(f finding) bool { return !f.Equal })
				if good || time.Now().After(deadline) {
					err := cli.Print(cmd, t, found, func(w io.Writer) {
						for _, f := range found {
							fmt.Fprintf(w, "%s/%d: %d bytes on %v: %s\n", f.Topic, f.Partition, f.Compared, f.Replicas, cmp.Or(f.Problem, "equal"))
						}
					})
					return cli.EndUnless(good, cli.ExitDiffers, err)
				}
				if !concurrency.Sleep(cmd.Context(), 200*time.Millisecond) {
					return cmd.Context().Err()
				}
			}
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 5*time.Second, "how long replicas that are behind may take to catch up")
	return cmd
}

// compareTopic compares each partition up to its end at the first read: later messages may not be on all replicas yet.
func compareTopic(ctx context.Context, t *cli.Target, topic string, ends map[int]int64) ([]finding, error) {
	v, x, there, err := t.Topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, cli.NotFound("topic", topic)
	}
	address := map[ident.Node]string{}
	for _, b := range v.Brokers {
		if b.Alive {
			address[b.Name] = t.Address(b)
		}
	}
	var found []finding
	for _, p := range x.Partitions {
		found = append(found, comparePartition(ctx, t, topic, p, address, ends))
	}
	return found, nil
}

// comparePartition reads all replicas in step. Each batch's checksum covers the one before it,
// so equal checksums at the end mean equal bytes from the first batch that both still have.
func comparePartition(ctx context.Context, t *cli.Target, topic string, p api.PartitionView, address map[ident.Node]string, ends map[int]int64) finding {
	f := finding{Topic: topic, Partition: p.Partition}
	var cursors []*digestCursor
	end, known := ends[p.Partition]
	for _, n := range p.Replicas {
		f.Replicas = append(f.Replicas, string(n))
		at, alive := address[n]
		if !alive {
			f.Problem = fmt.Sprintf("%s is not alive", n)
			return f
		}
		cursors = append(cursors, &digestCursor{target: t, node: string(n), address: at, topic: topic, partition: p.Partition})
	}
	for _, c := range cursors {
		now, err := c.digest(ctx, math.MaxInt64) // no batches
		if err != nil {
			f.Problem = err.Error()
			return f
		}
		if !known {
			end = max(end, now.Committed)
		}
	}
	ends[p.Partition] = end
	var err error
	if f.Problem, f.Compared, err = compare(ctx, cursors, end); err != nil {
		f.Problem = err.Error()
	}
	f.Equal = f.Problem == ""
	return f
}

// digestCursor reads one replica's digest page by page.
type digestCursor struct {
	target               *cli.Target
	node, address, topic string
	partition            int
	page                 api.Digest
	at                   int
	begun                bool
}

func (c *digestCursor) digest(ctx context.Context, from int64) (page api.Digest, err error) {
	q := url.Values{"topic": {c.topic}, "partition": {fmt.Sprint(c.partition)}, "from": {fmt.Sprint(from)}}
	if err := c.target.Get(ctx, c.address, "/v1/partition/digest", q, &page); err != nil {
		return page, fmt.Errorf("%s: %w", c.node, err)
	}
	return page, nil
}

// load reads the next page if no batch of this one is left.
func (c *digestCursor) load(ctx context.Context, end int64) (err error) {
	for err == nil && (!c.begun || c.at >= len(c.page.Batches) && c.page.Next < min(c.page.Committed, end)) {
		c.page, err = c.digest(ctx, c.page.Next)
		c.at, c.begun = 0, true
		if len(c.page.Batches) == 0 {
			break
		}
	}
	return err
}

// batch returns the current batch; nil at the given end, or at the end of the replica.
func (c *digestCursor) batch(end int64) *api.BatchDigest {
	if c.at >= len(c.page.Batches) || c.page.Batches[c.at].Offset >= end {
		return nil
	}
	return &c.page.Batches[c.at]
}

// compare returns the first difference below an end, or "".
func compare(ctx context.Context, cursors []*digestCursor, end int64) (problem string, compared int64, err error) {
	for {
		start := int64(0)
		for _, c := range cursors {
			if err := c.load(ctx, end); err != nil {
				return "", compared, err
			}
			start = max(start, c.page.Start)
		}
		// Retention may have removed batches from one replica only: replicas cut their files at different offsets,
		// because their logs began at different positions or the file size was changed.
		trimmed, ended := false, 0
		for _, c := range cursors {
			b := c.batch(end)
			if b == nil {
				ended++
			} else if b.Offset < start {
				c.at++
				trimmed = true
			}
		}
		if trimmed {
			continue
		}
		for _, c := range cursors {
			if c.batch(end) == nil && c.page.Committed < end {
				return fmt.Sprintf("%s ends at %d, and another replica at %d", c.node, c.page.Committed, end), compared, nil
			}
		}
		if ended == len(cursors) {
			return "", compared, nil
		}
		first := cursors[0].batch(end)
		for _, c := range cursors {
			b := c.batch(end)
			if b == nil {
				return fmt.Sprintf("%s ends at %d, before the others", c.node, c.page.Committed), compared, nil
			}
			if *b != *first {
				return fmt.Sprintf("%s and %s differ at offset %d: %+v, %+v", cursors[0].node, c.node, first.Offset, *first, *b), compared, nil
			}
		}
		compared += first.Bytes
		for _, c := range cursors {
			c.at++
		}
	}
}
