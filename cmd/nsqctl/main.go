// Command nsqctl publishes, consumes, inspects and administers a Lockstep cluster, and starts
// one on loopback for development. It uses only the NSQ protocol and the brokers' HTTP API;
// most commands work with a stock nsqd too.
//
// The package has the commands of topics, channels, messages and users. The other groups of commands
// are packages below internal, and so is what all commands share (internal/cli).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/benchcmd"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/certcmd"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/clustercmd"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/devcmd"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/dump"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/migration"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/recovercmd"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/transfer"
	"github.com/lockstepmq/lockstep/internal/observe/redact"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a pipe that is closed is an error of its write
	root, out := newRoot(), &cli.Written{To: os.Stdout}
	root.SetOut(out)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = out.Result(nil) // of help and completions, which are no commands
	}
	if err := cli.AsUsage(err); err != nil {
		var e cli.ExitError
		if !errors.As(err, &e) || !e.Silent {
			fmt.Fprintln(os.Stderr, "nsqctl:", redact.Text(err.Error()))
		}
		os.Exit(cli.ExitCode(ctx, err))
	}
}

func newRoot() *cobra.Command {
	t := &cli.Target{}
	root := cli.NewRoot(t, devcmd.NewDev(), devcmd.NewEtcd(), newPub(t), newTail(t), clustercmd.NewCluster(t), clustercmd.NewBroker(t), newTopic(t), newChannel(t), newStats(t), newPeek(t), newTrace(t), dump.New(t), newCheck(t), recovercmd.NewRecover(t), benchcmd.NewBench(t), migration.NewMigrate(t), migration.NewImportNSQD(t), transfer.NewExport(t), transfer.NewImport(t), transfer.NewMirror(t), clustercmd.NewVersion(t), newHealth(t), newUser(t), newACL(t), newAudit(t), certcmd.NewCert(t), cli.NewProfile(t), newMan())
	root.Short = "publish, consume, inspect and administer a Lockstep cluster"
	root.Long = `nsqctl uses any broker of a cluster: every broker accepts every put, serves
every channel and answers for the whole cluster. Without addresses it uses the
brokers of ./data/cluster.json, which "make run" and "nsqctl dev" write, or else
a broker at the default ports. Each global flag has an environment variable
(--token-file: $LOCKSTEP_TOKEN_FILE), and "nsqctl profile" keeps them under names.

` + cli.ExitCodesHelp
	root.Example = `  nsqctl dev --nodes 3 --data-dir ./data          # a cluster on loopback
  nsqctl pub --topic records records.jsonl        # one message a line
  nsqctl tail --topic records -n 10
  nsqctl cluster status
  nsqctl check records                            # are the replicas equal?`
	return root
}
