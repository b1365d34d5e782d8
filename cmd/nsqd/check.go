package main

import (
	"fmt"
	"os"

	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/listen"
	"github.com/lockstepmq/lockstep/internal/observe/redact"
)

// checked ends --check-config if the settings themselves have no fault.
func checked(o config.Options, warnings []string) int {
	if faults := fileFaults(o); len(faults) > 0 {
		return faulty(faults)
	}
	if err := certificateFault(o.RPCTLSCert, reachable(o.RPCAddress, o.BroadcastAddress)); err != nil { // a start only logs it
		warnings = append(warnings, fmt.Sprintf("other brokers will refuse this one's certificate: %v", err))
	}
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "nsqd: warning:", redact.Text(w))
	}
	fmt.Println("the settings are valid")
	return 0
}

func faulty(lines []string) int {
	for _, line := range lines {
		fmt.Fprintln(os.Stderr, "nsqd:", redact.Text(line))
	}
	return exitUsage
}

// fileFaults returns the faults of the files in the settings that would prevent a start. It creates and changes
// nothing.
func fileFaults(o config.Options) (faults []string) {
	note := func(setting string, err error) {
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", setting, err))
		}
	}
	if o.TLSCert != "" && o.TLSKey != "" {
		_, err := listen.LoadTLS(o.ClientTLS)
		note("--tls-cert, --tls-key, --tls-root-ca-file", err)
	} else {
		_, err := listen.RequestTLS(o.ClientTLS)
		note("--tls-root-ca-file", err)
	}
	_, _, err := loadPeerIdentity(o, nil)
	note("--rpc-tls-cert, --rpc-tls-key, --rpc-tls-ca", err)
	_, err = secret(o.ClusterToken, o.ClusterTokenFile)
	note("--cluster-token-file", err)
	_, err = bootstrapToken(o)
	note("--bootstrap-admin-token-file", err)
	if !o.EmbedsEtcd() {
		_, err = externalTLS(o, nil)
		note("--etcd-tls-cert, --etcd-tls-key, --etcd-tls-ca", err)
		_, err = secret(o.EtcdPassword, o.EtcdPasswordFile)
		note("--etcd-password-file", err)
	}
	note("--data-path", dataPathFault(o.DataPath))
	return faults
}
