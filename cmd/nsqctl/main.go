// Command nsqctl publishes, consumes, inspects and administers a Lockstep cluster, and starts one on loopback for
// development. It uses only the NSQ protocol and the brokers' HTTP API; most commands work with a stock nsqd too.
//
// The package has the commands of topics, channels, messages and users. The other groups of commands
// are packages below internal, and so is what all commands share (internal/cli).
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/certcmd"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/clustercmd"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/devcmd"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/dump"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/migration"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/recovercmd"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/transfer"
	"github.com/lockstepmq/lockstep/internal/config"
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
	root := cli.NewRoot(t, slices.Concat(clustercmd.Commands(t), devcmd.Commands(t), migration.Commands(t), transfer.Commands(t), []*cobra.Command{
		newPub(t), newTail(t), newTopic(t), newChannel(t), newStats(t), newPeek(t), newTrace(t), newCheck(t), newHealth(t), newUser(t), newACL(t), newAudit(t), newMan(),
		dump.New(t), recovercmd.NewRecover(t), certcmd.NewCert(t),
	})...)
	root.Short = "publish, consume, inspect and administer a Lockstep cluster"
	root.Long = `nsqctl uses any broker of a cluster: every broker accepts every put, serves
every channel and answers for the whole cluster. Without addresses it uses the
brokers of ./data/cluster.json, which "make run" and "nsqctl dev" write, or else
a broker at the default ports. Each global flag has an environment variable
(--token-file: $LOCKSTEP_TOKEN_FILE), and "nsqctl profile" saves them under names.

` + cli.ExitCodesHelp
	root.Example = `  nsqctl dev --nodes 3 --data-dir ./data          # a cluster on loopback
  nsqctl pub --topic records records.jsonl        # one message a line
  nsqctl tail --topic records -n 10
  nsqctl cluster status
  nsqctl check records                            # are the replicas equal?`
	return root
}

// newMan is a hidden command for packagers.
func newMan() *cobra.Command {
	var version string
	cmd := &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "write the manual pages of nsqctl and nsqd",
		Long:   `man writes the manual pages into a directory. SOURCE_DATE_EPOCH sets their date.`,
		Hidden: true,
		Example: `  nsqctl man ./man
  man -l ./man/nsqctl.1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			date, err := sourceDate()
			if err != nil {
				return err
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			header := &doc.GenManHeader{Section: "1", Date: &date, Source: "lockstep " + version, Manual: "Lockstep"}
			if err := doc.GenManTreeFromOpts(root, doc.GenManTreeOptions{Header: header, Path: args[0], CommandSeparator: "-"}); err != nil {
				return err
			}
			var broker bytes.Buffer
			if err := config.Manual(&broker, date, version); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(args[0], "nsqd.8"), broker.Bytes(), 0o644)
		},
	}
	cmd.Flags().StringVar(&version, "product-version", "", "version at the foot of the pages")
	return cmd
}

// sourceDate returns the time of SOURCE_DATE_EPOCH, which makes a build reproducible.
func sourceDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return time.Now(), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		err = fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), err
}
