package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// The thresholds are those of contrib/prometheus/alerts.yml; TestThresholdsOfTheAlerts compares them.
// An alarm is raised at the first look, an alert after the time that its rule says.
const (
	certificateSoon = 14 * 24 * time.Hour // LockstepCertificateExpires
	refusedLately   = 5 * time.Minute     // LockstepConnectionsRefused
	corruptLately   = time.Hour           // LockstepNetworkCorrupts
	databaseFilled  = 0.8                 // LockstepMetadataFull
	busyFor         = time.Second         // LockstepDiskStalled, LockstepCoreLoopStalled
	authSilent      = 30 * time.Second    // LockstepAuthServiceSilent
)

// othersLead is the time after which other brokers lead in place of one that hangs, if they can: it has given up its
// registration then.
const othersLead = 5 * time.Second

// Codes of alarms that need a broker's report on itself.
const (
	CertificateExpires  = "certificate_expires"
	CertificateUnusable = "certificate_unusable"
	ClientsRefused      = "clients_refused"
	NetworkCorrupts     = "network_corrupts"
	MetadataFull        = "metadata_full"
	AuthServiceSilent   = "auth_service_silent"
	ChannelIdle         = "channel_idle"
	PolicyHeld          = "policy_held"
)

// MaxIdleChannels bounds the idle channels in a report.
const MaxIdleChannels = 100

// MaxHeldPolicies bounds the held policies in a report.
const MaxHeldPolicies = 100

// Own is a broker's report on itself: faults that neither the metadata nor another broker has. Its
// times are distances by the broker's own clock. A missing value is unknown, or does not apply: an
// older build has none.
type Own struct {
	// CertificateSeconds is for how long a certificate is valid still, by its use (client, rpc, etcd);
	// negative after its end.
	CertificateSeconds map[string]float64 `json:"certificate_seconds,omitempty"`
	// CertificateFaults are the reasons why the files of a certificate cannot be used, by its use. The broker runs with
	// those that it read before.
	CertificateFaults map[string]string `json:"certificate_faults,omitempty"`
	// RefusedSecondsAgo is when a limit last refused a client, by the limit (the label of
	// lockstep_refused_total).
	RefusedSecondsAgo map[string]float64 `json:"refused_seconds_ago,omitempty"`
	// AuthUnansweredSeconds is for how long the authorization service has given no usable answer.
	AuthUnansweredSeconds float64 `json:"auth_unanswered_seconds,omitempty"`
	// CorruptSecondsAgo is when a frame of another broker last had a wrong checksum.
	CorruptSecondsAgo *float64 `json:"corrupt_seconds_ago,omitempty"`
	// The database of the embedded etcd: the bytes in use, the size at which it refuses all writes,
	// and whether it does.
	EtcdInUseBytes int64 `json:"etcd_in_use_bytes,omitempty"`
	EtcdQuotaBytes int64 `json:"etcd_quota_bytes,omitempty"`
	EtcdRefuses    bool  `json:"etcd_refuses,omitempty"`
	// For how long the present write of the journal, and pass of a core loop, has been under way.
	JournalBusySeconds float64 `json:"journal_busy_seconds,omitempty"`
	LoopBusySeconds    float64 `json:"loop_busy_seconds,omitempty"`
	// IdleChannels are the channels that the broker, as the controller, will delete, the first one first: at
	// most MaxIdleChannels of IdleChannelCount.
	IdleChannels     []api.IdleChannel `json:"idle_channels,omitempty"`
	IdleChannelCount int               `json:"idle_channel_count,omitempty"`
	// HeldPolicies are policies whose owners may not publish to the dead-letter topic any more: at most
	// MaxHeldPolicies of HeldPolicyCount.
	HeldPolicies    []api.HeldPolicy `json:"held_policies,omitempty"`
	HeldPolicyCount int              `json:"held_policy_count,omitempty"`
}

// Hangs reports whether a write of the journal or a pass of a core loop takes too long.
func (o Own) Hangs() bool { return o.busy() > busyFor }

func (o Own) busy() time.Duration { return seconds(max(o.JournalBusySeconds, o.LoopBusySeconds)) }

// Full reports whether the embedded etcd of a broker refuses all writes.
func Full(own map[ident.Node]Own) bool {
	for _, o := range own {
		if o.EtcdRefuses {
			return true
		}
	}
	return false
}

// startsFirst are alarms whose remedy is to start brokers or members.
var startsFirst = []string{NoLeader, BelowMinimum, OneDisk, UnderReplicated, NoBrokers, BrokerDead, MetadataSilent}

// makeRoomFirst changes the remedies that do not help while etcd refuses all writes: a broker that is
// started then cannot register.
func (r *Report) makeRoomFirst() {
	for i := range r.Alarms {
		if slices.Contains(startsFirst, r.Alarms[i].Code) {
			r.Alarms[i].Do = fullDo
		}
	}
}

// The remedies are those of the alerts: TestThresholdsOfTheAlerts compares them.
const (
	certificateDo = "replace the files; a running broker rereads the certificate between brokers by itself, and that for clients at SIGHUP"
	unusableDo    = "put the certificate and its private key back, before this broker restarts: it runs with those that it read before, and does not start with these"
	refusedDo     = "raise the limit, or find the client: the table of limits (docs/reference/limits.md) has the setting, the log names the client"
	fillDo        = "delete topics and channels that nobody needs, and the keys of other programs, while etcd takes writes"
	fullDo        = "stop the program that fills it, and delete its keys with etcdctl: etcd takes nothing else, not the deletion of a topic. Then it makes room by itself: docs/operations/alerts.md, LockstepMetadataFull"
	idleDo        = "a consumer, or any operation on the channel, keeps it; nsqctl topic set TOPIC --channel-idle-after 0s ends this for the topic. If nobody needs the channel, wait, or delete it"
	authDo        = "repair the service, or the way to it: the broker's log (authorization query failed) has the reason"
	heldDo        = "nsqctl acl grant OWNER --topic DEAD-LETTER-TOPIC --rights publish, if the user shall have the right again. Otherwise set the policy as a user that has it, or clear it: nsqctl channel policy TOPIC CHANNEL --max-attempts 0 --dead-letter-topic ''"
	corruptDo     = "its log (corrupt frame) names the other broker: look at the network cards, the switches and the memory of both"
)

// ownAlarms are the alarms of the brokers' reports on themselves.
func ownAlarms(own map[ident.Node]Own) []Alarm {
	var r Report
	var full, certificates, unusable, refused, silent, corrupt finding
	for _, n := range slices.Sorted(maps.Keys(own)) {
		o := own[n]
		switch {
		case o.EtcdRefuses:
			full.add(n, fmt.Sprintf("the embedded etcd of %s is full and refuses all writes: nothing can be created, no broker can start, and no dead leader is replaced", n))
		case float64(o.EtcdInUseBytes) > databaseFilled*float64(o.EtcdQuotaBytes):
			full.add(n, fmt.Sprintf("the embedded etcd of %s has used %d %% of its quota, at which it refuses all writes", n, 100*o.EtcdInUseBytes/o.EtcdQuotaBytes))
		}
		for _, use := range slices.Sorted(maps.Keys(o.CertificateSeconds)) {
			if left := seconds(o.CertificateSeconds[use]); left < certificateSoon {
				certificates.add(n, fmt.Sprintf("the %s certificate of %s %s", use, n, expiry(left)))
			}
		}
		for _, use := range slices.Sorted(maps.Keys(o.CertificateFaults)) {
			unusable.add(n, fmt.Sprintf("the %s certificate of %s cannot be used: %s", use, n, o.CertificateFaults[use]))
		}
		for _, limit := range slices.Sorted(maps.Keys(o.RefusedSecondsAgo)) {
			if seconds(o.RefusedSecondsAgo[limit]) < refusedLately {
				refused.add(n, fmt.Sprintf("%s refuses clients, limit %s", n, limit))
			}
		}
		if lasted := seconds(o.AuthUnansweredSeconds); lasted > authSilent {
			silent.add(n, fmt.Sprintf("the authorization service has given %s no usable answer for %s: new clients are refused, and those that it knew keep their rights until an hour after the end of its last answer", n, lasted.Round(time.Second)))
		}
		if o.CorruptSecondsAgo != nil && seconds(*o.CorruptSecondsAgo) < corruptLately {
			corrupt.add(n, fmt.Sprintf("bytes change on the way to %s: a frame of another broker had a wrong checksum within the last hour", n))
		}
	}
	remedy := fillDo
	if Full(own) {
		remedy = fullDo
	}
	full.raise(&r, Degraded, MetadataFull, remedy)
	certificates.raise(&r, Degraded, CertificateExpires, certificateDo)
	unusable.raise(&r, Degraded, CertificateUnusable, unusableDo)
	refused.raise(&r, Degraded, ClientsRefused, refusedDo)
	silent.raise(&r, Degraded, AuthServiceSilent, authDo)
	corrupt.raise(&r, Degraded, NetworkCorrupts, corruptDo)
	for _, n := range slices.Sorted(maps.Keys(own)) {
		r.idle(own[n])
		r.held(own[n])
	}
	return r.Alarms
}

// held reports the policies that hold their dead messages.
func (r *Report) held(o Own) {
	if len(o.HeldPolicies) == 0 {
		return
	}
	var where, texts []string
	for _, p := range o.HeldPolicies {
		where = append(where, p.Topic+"/"+p.Channel)
		if len(texts) < textsOf {
			texts = append(texts, fmt.Sprintf("channel %s/%s holds its dead messages: user %s set its policy and may not publish to %s any more", p.Topic, p.Channel, p.Owner, p.DeadLetterTopic))
		}
	}
	text := strings.Join(texts, "; ")
	if more := max(o.HeldPolicyCount, len(o.HeldPolicies)) - len(texts); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	r.raise(Degraded, PolicyHeld, where, text, heldDo)
}

// idle reports the channels that the controller will delete.
func (r *Report) idle(o Own) {
	if len(o.IdleChannels) == 0 {
		return
	}
	var where, texts []string
	for _, c := range o.IdleChannels {
		where = append(where, c.Topic+"/"+c.Channel)
		if len(texts) < textsOf {
			texts = append(texts, fmt.Sprintf("channel %s/%s will be deleted with its messages at %s: nothing has used it for %s",
				c.Topic, c.Channel, time.UnixMilli(c.DeletesAtMS).UTC().Format("2006-01-02 15:04:05 UTC"), about(time.Duration(c.IdleMS)*time.Millisecond)))
		}
	}
	text := strings.Join(texts, "; ")
	if more := max(o.IdleChannelCount, len(o.IdleChannels)) - len(texts); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	r.raise(Degraded, ChannelIdle, where, text, idleDo)
}

// finding is a fault that several brokers may have.
type finding struct{ where, texts []string }

func (f *finding) add(n ident.Node, text string) {
	f.texts = append(f.texts, text)
	if !slices.Contains(f.where, string(n)) {
		f.where = append(f.where, string(n))
	}
}

// textsOf bounds the sentences of an alarm; its places are all named.
const textsOf = 3

func (f *finding) raise(r *Report, s State, code, instruction string) {
	if len(f.texts) == 0 {
		return
	}
	text := strings.Join(f.texts[:min(textsOf, len(f.texts))], "; ")
	if more := len(f.texts) - textsOf; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	r.raise(s, code, f.where, text, instruction)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// expiry says when a certificate expires, or has.
func expiry(left time.Duration) string {
	switch {
	case left < 0:
		return "has expired " + about(-left) + " ago"
	default:
		return "expires in " + about(left)
	}
}

// about rounds a time for people.
func about(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%d days", d/day)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return plural(int(d/time.Minute), "minute", "minutes")
}
