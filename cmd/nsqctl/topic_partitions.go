package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
)

func newPartitions(t *cli.Target) *cobra.Command {
	var reorder bool
	cmd := &cobra.Command{
		Use:   "partitions TOPIC NUMBER",
		Short: "raise the number of partitions of a topic",
		Long: `partitions raises the number of partitions of a topic, while producers and consumers
continue. The number is never lowered, and the messages that are there stay where
they are. All channels, with their pauses, are in the new partitions before the
first message is.

Later messages of a key may go to another partition than earlier ones, so the order
of the messages of a key is not kept across the change. To keep it: stop the
producers, wait until the channels are empty, raise the number, start the producers.
Ordered topics are refused without --reorder for that reason.

So is a topic that recognises messages by their content: one that was published
before the change and is published again after it may be stored again. Let nobody
publish for the topic's dedupe window before the change. The same holds for messages
with ids, of which the topic does not know whether it has any.`,
		Example: `  nsqctl topic partitions orders 8`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 1 {
				return cli.ExitError{Code: cli.ExitUsage, Err: fmt.Errorf("NUMBER must be a positive number, not %q", args[1])}
			}
			q := url.Values{"topic": args[:1], "partitions": {args[1]}}
			if reorder {
				q.Set("reorder", "true")
			}
			if _, err := t.CallAny(cmd.Context(), http.MethodPost, "/v1/topic/partitions", q); err != nil {
				return err
			}
			return describeTopic(cmd, t, args[0])
		},
	}
	cmd.Flags().BoolVar(&reorder, "reorder", false, "also for an ordered topic, or one with --dedupe content: its channels are empty and nobody publishes, or it does not matter")
	return cmd
}
