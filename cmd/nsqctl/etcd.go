package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/etcdserver"
)

// stockTxnOps is how many operations a stock etcd takes in one transaction.
const stockTxnOps = 128

// login is the user that a plain etcd demands; none without a name.
type login struct{ user, passwordFile string }

func newEtcd() *cobra.Command {
	o := etcdserver.Options{MaxTxnOps: stockTxnOps}
	var l login
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "run a plain etcd until Ctrl-C, for brokers with --etcd-endpoints",
		Long: `etcd runs one member of the etcd release that the brokers embed, with the limits
of a stock one, for development and tests. It prints "ready" when it has a
leader. Real clusters bring their own etcd, or let the brokers embed it.`,
		Example: `  nsqctl etcd --data-dir /tmp/etcd &
  nsqctl dev --nodes 4 --etcd-endpoints http://127.0.0.1:2379
  nsqctl etcd --tls-cert etcd.pem --tls-key etcd.key --tls-ca ca.pem --username lockstep --password-file secret`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runEtcd(cmd, o, l) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "default", "name of the member")
	f.StringVar(&o.Dir, "data-dir", "./etcd", "where it keeps its data")
	f.StringVar(&o.ClientAddress, "client-address", "127.0.0.1:2379", "where brokers connect")
	f.StringVar(&o.PeerAddress, "peer-address", "127.0.0.1:2380", "where other members connect")
	f.StringVar(&o.InitialCluster, "initial-cluster", "", "all members, n1=http://host:port,…; empty: this one alone")
	f.StringVar(&o.TLS.Cert, "tls-cert", "", "certificate, for both ports")
	f.StringVar(&o.TLS.Key, "tls-key", "", "its private key")
	f.StringVar(&o.TLS.CA, "tls-ca", "", "authority of the certificates that brokers and members must show")
	f.StringVar(&l.user, "username", "", "user as whom brokers must log in; empty: anybody may")
	f.StringVar(&l.passwordFile, "password-file", "", "file with the user's password")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	cmd.MarkFlagsRequiredTogether("username", "password-file")
	f.DurationVar(&o.Heartbeat, "heartbeat", 100*time.Millisecond, "as a stock etcd has it")
	f.DurationVar(&o.Election, "election-timeout", time.Second, "as a stock etcd has it")
	return cmd
}

func runEtcd(cmd *cobra.Command, o etcdserver.Options, l login) error {
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
	if l.user != "" {
		secret, err := os.ReadFile(l.passwordFile)
		if err != nil {
			return err
		}
		if err := s.RequireLogin(wait, l.user, strings.TrimSpace(string(secret))); err != nil {
			return err
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "ready, %s\n", s.Endpoints()[0])
	select {
	case <-cmd.Context().Done():
		return nil
	case err := <-s.Err():
		return err
	}
}
