// Command nsqctl publishes, consumes, inspects and administers a Lockstep
// cluster, and starts one on loopback for development. It speaks only the NSQ
// protocol and the brokers' HTTP API; most commands work against stock nsqd too.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/edge"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := newRoot().ExecuteContext(ctx); err != nil {
		if !errors.Is(err, errSilent) {
			fmt.Fprintln(os.Stderr, "nsqctl:", err)
		}
		os.Exit(1)
	}
}

// errSilent ends with exit code 1 and no further text: the command said it all.
var errSilent = errors.New("failed")

// target is where the commands find a broker; any one of the cluster will do.
type target struct {
	tcp      []string
	http     string
	output   string
	security security
	client   *http.Client // valid once a command runs
}

// The default ports of a broker's API.
const (
	httpAddress  = "127.0.0.1:4151"
	httpsAddress = "127.0.0.1:4152"
)

func newRoot() *cobra.Command {
	t := &target{}
	root := &cobra.Command{
		Use:   "nsqctl",
		Short: "publish, consume, inspect and administer a Lockstep cluster",
		Long: `nsqctl talks to any broker of a cluster: every broker takes every put, serves
every channel and answers for the whole cluster.`,
		Example: `  nsqctl dev --nodes 3 --data-dir ./data          # a cluster on loopback
  nsqctl pub --topic records records.jsonl        # one message a line
  nsqctl tail --topic records -n 10
  nsqctl cluster status
  nsqctl check records                            # are the replicas equal?`,
		Version:           edge.Version,
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return t.prepare(cmd) },
	}
	f := root.PersistentFlags()
	f.StringSliceVar(&t.tcp, "nsqd-tcp-address", []string{"127.0.0.1:4150"}, "TCP address of a broker; may be repeated, the next is used when one fails")
	f.StringVar(&t.http, "nsqd-http-address", httpAddress, "HTTP address of any broker; with TLS its HTTPS address ("+httpsAddress+")")
	f.StringVarP(&t.output, "output", "o", "text", "text or json")
	t.security.flags(f)
	root.AddCommand(newDev(), newEtcd(), newPub(t), newTail(t), newCluster(t), newTopic(t), newChannel(t), newStats(t), newPeek(t), newDump(), newCheck(t), newRecover(t), newBench(t))
	for _, group := range root.Commands() {
		if !group.Runnable() {
			group.Example = group.Commands()[0].Example
			group.Args, group.RunE = cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	return root
}

// prepare works out what the flags mean together.
func (t *target) prepare(cmd *cobra.Command) error {
	if t.output != "text" && t.output != "json" {
		return fmt.Errorf("--output is text or json, not %q", t.output)
	}
	if err := t.security.load(); err != nil {
		return err
	}
	if t.security.config != nil && !cmd.Flags().Changed("nsqd-http-address") {
		t.http = httpsAddress
	}
	t.client = t.security.client()
	return nil
}
