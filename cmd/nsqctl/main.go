// Command nsqctl publishes, consumes, inspects and administers a Lockstep cluster, and starts
// one on loopback for development. It uses only the NSQ protocol and the brokers' HTTP API;
// most commands work with a stock nsqd too.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := asUsage(newRoot().ExecuteContext(ctx)); err != nil {
		var e ended
		if !errors.As(err, &e) || !e.silent {
			fmt.Fprintln(os.Stderr, "nsqctl:", err)
		}
		os.Exit(exitCode(ctx, err))
	}
}

func newRoot() *cobra.Command {
	t := &target{}
	root := &cobra.Command{
		Use:   "nsqctl",
		Short: "publish, consume, inspect and administer a Lockstep cluster",
		Long: `nsqctl uses any broker of a cluster: every broker accepts every put, serves
every channel and answers for the whole cluster. Without addresses it uses the
brokers of ./data/cluster.json, which "make run" and "nsqctl dev" write, or else
a broker at the default ports. Each global flag has an environment variable
(--token-file: $LOCKSTEP_TOKEN_FILE), and "nsqctl profile" keeps them under names.

` + exitCodes,
		Example: `  nsqctl dev --nodes 3 --data-dir ./data          # a cluster on loopback
  nsqctl pub --topic records records.jsonl        # one message a line
  nsqctl tail --topic records -n 10
  nsqctl cluster status
  nsqctl check records                            # are the replicas equal?`,
		Version:           versionLine(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return t.prepare(cmd) },
	}
	f := root.PersistentFlags()
	f.StringSliceVar(&t.tcp, "nsqd-tcp-address", []string{tcpAddress}, "TCP address of a broker; may be repeated, the next is used when one fails")
	f.StringSliceVar(&t.Addresses, "nsqd-http-address", []string{httpAddress}, "HTTP address of any broker, with TLS its HTTPS address ("+httpsAddress+"); may be repeated, the next is asked when one does not answer")
	f.StringVarP(&t.output, "output", "o", "text", "text (or table), wide, json or yaml")
	f.String("profile", "", "settings that \"nsqctl profile\" keeps; empty: those of \"profile use\"")
	t.security.flags(f)
	root.AddCommand(newDev(), newEtcd(), newPub(t), newTail(t), newCluster(t), newBroker(t), newTopic(t), newChannel(t), newStats(t), newPeek(t), newTrace(t), newDump(t), newCheck(t), newRecover(t), newBench(t), newMigrate(t), newImportNSQD(t), newExport(t), newImport(t), newMirror(t), newVersion(t), newHealth(t), newUser(t), newACL(t), newAudit(t), newProfile(t), newMan())
	root.SetVersionTemplate("nsqctl: {{.Version}}\n")
	for _, group := range root.Commands() {
		if !group.Runnable() {
			group.Example = group.Commands()[0].Example
			group.Args, group.RunE = cobra.NoArgs, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	markUsage(root)
	t.formatOutput(root)
	t.completeNames(root)
	return root
}
