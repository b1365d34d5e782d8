package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/etcdserver"
)

// stockTxnOps is how many operations a stock etcd takes in one transaction.
const stockTxnOps = 128

func newEtcd() *cobra.Command {
	o := etcdserver.Options{MaxTxnOps: stockTxnOps}
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "run a plain etcd until Ctrl-C, for brokers with --etcd-endpoints",
		Long: `etcd runs one member of the etcd release that the brokers embed, with the limits
of a stock one, for development and tests. It prints "ready" when it has a
leader. Real clusters bring their own etcd, or let the brokers embed it.`,
		Example: `  nsqctl etcd --data-dir /tmp/etcd &
  nsqctl dev --nodes 4 --etcd-endpoints http://127.0.0.1:2379`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runEtcd(cmd, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "default", "name of the member")
	f.StringVar(&o.Dir, "data-dir", "./etcd", "where it keeps its data")
	f.StringVar(&o.ClientAddress, "client-address", "127.0.0.1:2379", "where brokers connect")
	f.StringVar(&o.PeerAddress, "peer-address", "127.0.0.1:2380", "where other members connect")
	f.StringVar(&o.InitialCluster, "initial-cluster", "", "all members, n1=http://host:port,…; empty: this one alone")
	f.DurationVar(&o.Heartbeat, "heartbeat", 100*time.Millisecond, "as a stock etcd has it")
	f.DurationVar(&o.Election, "election-timeout", time.Second, "as a stock etcd has it")
	return cmd
}

func runEtcd(cmd *cobra.Command, o etcdserver.Options) error {
	log := logrus.New()
	log.SetOutput(cmd.ErrOrStderr())
	o.Log = log
	s, err := etcdserver.Start(cmd.Context(), o)
	if err != nil {
		return err
	}
	defer s.Stop()
	wait, cancel := context.WithTimeout(cmd.Context(), readyTimeout)
	defer cancel()
	if err := s.Wait(wait); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "ready, %s\n", s.Endpoints()[0])
	select {
	case <-cmd.Context().Done():
		return nil
	case err := <-s.Err():
		return err
	}
}
