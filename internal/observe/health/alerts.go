// Code generated from contrib/prometheus/alerts.yml by make reference; DO NOT EDIT.

package health

import "time"

// Thresholds of alerts, for the alarms of the same faults.
const (
	authServiceSilentLimit  = 30 * time.Second
	brokerHangsLimit        = 1 * time.Second
	certificateExpiresLimit = 14 * 24 * 3600 * time.Second
	clientsRefusedLimit     = 5 * time.Minute
	metadataFullLimit       = 0.8
	networkCorruptsLimit    = 1 * time.Hour
)

// actions are the next steps of alerts, for the alarms of the same faults.
var actions = map[string]string{
	AuthServiceSilent:  "repair the service, or the network to it: the broker's log (authorization query failed) has the reason",
	BelowMinimum:       "start the dead brokers, or move their replicas: nsqctl topic move --help",
	BrokerDead:         "start the dead broker; if it runs, its log has the reason. If its disk is lost, start it with an empty data path; if it never returns: nsqctl broker decommission --help",
	BrokerHangs:        "check its disk (dmesg, SMART, the volume's provider) and its processor: its log says which one stalled. It rejoins by itself; if it has exited, start it again",
	CertificateExpires: "replace the files. A running broker rereads the certificate between brokers by itself, and the one for clients at SIGHUP",
	ClientsRefused:     "raise the limit, or find the client: the table of limits (docs/reference/limits.md) has the setting, the log names the client",
	Damaged:            "keep the disks, and start the other replicas. If none has the bytes, skip the place with nsqctl channel seek: docs/operations/failures.md, Disk",
	LowSpace:           "free or add disk space (nsqctl broker list has the free bytes): docs/operations/failures.md, Disk",
	MetadataFull:       "delete topics and channels that nobody needs, and the keys of other programs, while etcd takes writes",
	MetadataSilent:     "start the missing members of etcd, or repair the network to them. Stop no broker until etcd answers",
	NetworkCorrupts:    "its log (corrupt frame) names the other broker: check the network cards, the switches and the memory of both",
	NoLeader:           "start the dead brokers. If their disks are lost: nsqctl recover topic --help",
	OneDisk:            "start the dead brokers (nsqctl cluster status names them). Stop no other broker, and touch no disk",
	UnderReplicated:    "start the dead brokers, or decommission them. If a replica is catching up (nsqctl cluster status), wait",
}
