package devcmd

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
)

// stockTxnOps is the largest number of operations of a stock etcd's transaction.
const stockTxnOps = 128

// login is the user that the etcd requires; none without a name.
type login struct{ user, passwordFile string }

// NewEtcd returns the command that runs a member of etcd.
func NewEtcd() *cobra.Command {
	o := etcd.Options{MaxTxnOps: stockTxnOps}
	var l login
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "run a plain etcd until Ctrl-C, for brokers with --etcd-endpoints",
		Long: `etcd runs one member of the etcd release that the brokers embed, with the limits
of a stock etcd, for development and tests. It prints "ready" when it has a
leader; until then it waits for the other members and prints their names. For
production use an etcd cluster, or the etcd that the brokers embed.`,
		Example: `  nsqctl etcd --data-dir /tmp/etcd &
  nsqctl dev --nodes 4 --etcd-endpoints http://127.0.0.1:2379
  nsqctl etcd --tls-cert etcd.pem --tls-key etcd.key --tls-ca ca.pem --username lockstep --password-file secret`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runEtcd(cmd, o, l) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "default", "name of the member")
	f.StringVar(&o.Dir, "data-dir", "./etcd", "directory of its data")
	f.StringVar(&o.ClientAddress, "client-address", "127.0.0.1:2379", "address for brokers")
	f.StringVar(&o.PeerAddress, "peer-address", "127.0.0.1:2380", "address for other members")
	f.StringVar(&o.InitialCluster, "initial-cluster", "", "all members, n1=http://host:port,…; empty: only this one")
	f.StringVar(&o.TLS.Cert, "tls-cert", "", "certificate of both ports")
	f.StringVar(&o.TLS.Key, "tls-key", "", "private key of --tls-cert")
	f.StringVar(&o.TLS.CA, "tls-ca", "", "certificate authority of brokers and members; both must present a certificate")
	f.StringVar(&l.user, "username", "", "user name of the brokers' log-ins; empty: no log-in required")
	f.StringVar(&l.passwordFile, "password-file", "", "file with the user's password")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	cmd.MarkFlagsRequiredTogether("username", "password-file")
	f.DurationVar(&o.Heartbeat, "heartbeat", 100*time.Millisecond, "heartbeat interval, by default that of a stock etcd")
	f.DurationVar(&o.Election, "election-timeout", time.Second, "election timeout, by default that of a stock etcd")
	return cmd
}

func runEtcd(cmd *cobra.Command, o etcd.Options, l login) error {
	log := logrus.New()
	log.SetOutput(cmd.ErrOrStderr())
	o.Log = log
	line := &cli.StatusLine{Out: cmd.ErrOrStderr()}
	o.Waiting = line.Show
	s, err := etcd.Start(cmd.Context(), o)
	if err != nil {
		return err
	}
	defer s.Stop()
	err = s.Wait(cmd.Context())
	line.Clear()
	if err != nil {
		return unlessStopped(cmd, err)
	}
	if l.user != "" {
		secret, err := os.ReadFile(l.passwordFile)
		if err != nil {
			return err
		}
		if err := s.RequireLogin(cmd.Context(), l.user, strings.TrimSpace(string(secret))); err != nil {
			return unlessStopped(cmd, err)
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

// unlessStopped drops the error of an interrupted command: its end was requested.
func unlessStopped(cmd *cobra.Command, err error) error {
	if cmd.Context().Err() != nil {
		return nil
	}
	return err
}
