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

// othersLead is how long a broker may hang before others lead in its place, if they can: by then it has given up its
// registration.
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

// MaxListed is the maximum length of IdleChannels and of HeldPolicies.
const MaxListed = 100

// Own is a broker's report on itself: faults that neither the metadata nor another broker has. Its times are durations by the
// broker's own clock. A missing value is unknown, or does not apply.
type Own struct {
	// CertificateSeconds is the remaining validity of a certificate by its use (client, rpc, etcd), negative after it
	// has expired.
	CertificateSeconds map[string]float64 `json:"certificate_seconds,omitempty"`
	// CertificateFaults are the reasons why the files of a certificate cannot be used, by its use. The broker continues
	// to use the files that it read earlier.
	CertificateFaults map[string]string `json:"certificate_faults,omitempty"`
	// RefusedSecondsAgo is when a limit last refused a client, by limit (the label of lockstep_refused_total).
	RefusedSecondsAgo map[string]float64 `json:"refused_seconds_ago,omitempty"`
	// AuthUnansweredSeconds is how long the authorization service has given no usable answer.
	AuthUnansweredSeconds float64 `json:"auth_unanswered_seconds,omitempty"`
	// CorruptSecondsAgo is how long ago a frame of another broker last had a wrong checksum.
	CorruptSecondsAgo *float64 `json:"corrupt_seconds_ago,omitempty"`
	// The database of the embedded etcd: the bytes in use, the size at which it refuses all writes, and whether it does.
	EtcdInUseBytes int64 `json:"etcd_in_use_bytes,omitempty"`
	EtcdQuotaBytes int64 `json:"etcd_quota_bytes,omitempty"`
	EtcdRefuses    bool  `json:"etcd_refuses,omitempty"`
	// How long the current write of the journal and the current pass of a core loop have taken.
	JournalBusySeconds float64 `json:"journal_busy_seconds,omitempty"`
	LoopBusySeconds    float64 `json:"loop_busy_seconds,omitempty"`
	// IdleChannels are the channels that the broker, as the controller, will delete, earliest deletion first: the first
	// MaxListed of IdleChannelCount.
	IdleChannels     []api.IdleChannel `json:"idle_channels,omitempty"`
	IdleChannelCount int               `json:"idle_channel_count,omitempty"`
	// HeldPolicies are policies whose owners may no longer publish to the dead-letter topic: the first MaxListed of
	// HeldPolicyCount.
	HeldPolicies    []api.HeldPolicy `json:"held_policies,omitempty"`
	HeldPolicyCount int              `json:"held_policy_count,omitempty"`
}

// Hangs reports whether a write of the journal or a pass of a core loop takes too long.
func (o Own) Hangs() bool { return o.busy() > brokerHangsLimit }

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

// Next steps of alarms without an alert.
const (
	fullDo = "stop the program that fills etcd, and delete its keys with etcdctl: etcd accepts nothing else, not even the deletion of a topic. " +
		"Then etcd makes room by itself: docs/operations/alerts.md, LockstepMetadataFull"
	unusableDo = "restore the certificate and its private key before this broker restarts: it runs with the ones that it read before, and would " +
		"not start with these"
	idleDo = "a consumer, or any operation on the channel, prevents this; nsqctl topic set TOPIC --channel-idle-after 0s disables it for the " +
		"topic. If the channel is not needed, wait, or delete it"
	heldDo = "nsqctl acl grant OWNER --topic DEAD-LETTER-TOPIC --rights publish, if the user should have the right again. Otherwise set the policy " +
		"as a user that has it, or clear it: nsqctl channel policy TOPIC CHANNEL --max-attempts 0 --dead-letter-topic ''"
)

// reported raises the alarms of the brokers' reports on themselves: each alarm once for all brokers that have the
// fault.
func (r *Report) reported(own map[ident.Node]Own) {
	found := map[string]*finding{}
	add := func(code string, n ident.Node, format string, args ...any) {
		f := found[code]
		if f == nil {
			f = &finding{}
			found[code] = f
		}
		f.add(string(n), fmt.Sprintf(format, args...))
	}
	nodes := slices.Sorted(maps.Keys(own))
	for _, n := range nodes {
		o := own[n]
		switch {
		case o.EtcdRefuses:
			add(MetadataFull, n, "the embedded etcd of %s is full and refuses all writes: nothing can be created, no broker can start, "+
				"and no dead leader is replaced", n)
		case float64(o.EtcdInUseBytes) > metadataFullLimit*float64(o.EtcdQuotaBytes):
			add(MetadataFull, n, "the embedded etcd of %s has used %d %% of its quota, at which it refuses all writes", n, 100*o.EtcdInUseBytes/o.EtcdQuotaBytes)
		}
		for _, use := range slices.Sorted(maps.Keys(o.CertificateSeconds)) {
			if left := seconds(o.CertificateSeconds[use]); left < certificateExpiresLimit {
				add(CertificateExpires, n, "the %s certificate of %s %s", use, n, expiry(left))
			}
		}
		for _, use := range slices.Sorted(maps.Keys(o.CertificateFaults)) {
			add(CertificateUnusable, n, "the %s certificate of %s cannot be used: %s", use, n, o.CertificateFaults[use])
		}
		for _, limit := range slices.Sorted(maps.Keys(o.RefusedSecondsAgo)) {
			if seconds(o.RefusedSecondsAgo[limit]) < clientsRefusedLimit {
				add(ClientsRefused, n, "%s refuses clients, limit %s", n, limit)
			}
		}
		if lasted := seconds(o.AuthUnansweredSeconds); lasted > authServiceSilentLimit {
			add(AuthServiceSilent, n, "the authorization service has given %s no usable answer for %s: new clients are refused, and known ones "+
				"keep their rights until an hour after their last answer expired", n, lasted.Round(time.Second))
		}
		if o.CorruptSecondsAgo != nil && seconds(*o.CorruptSecondsAgo) < networkCorruptsLimit {
			add(NetworkCorrupts, n, "bytes change on the way to %s: a frame of another broker had a wrong checksum within the last hour", n)
		}
	}
	for _, code := range []string{MetadataFull, CertificateExpires, CertificateUnusable, ClientsRefused, AuthServiceSilent, NetworkCorrupts} {
		found[code].raise(r, code, actions[code])
	}
	for _, n := range nodes {
		r.idle(own[n])
		r.held(own[n])
	}
	r.instead(unusableDo, CertificateUnusable)
	if Full(own) {
		r.instead(fullDo, MetadataFull)
	}
}

func (r *Report) held(o Own) {
	f := finding{unlisted: o.HeldPolicyCount - len(o.HeldPolicies)}
	for _, p := range o.HeldPolicies {
		f.add(p.Topic+"/"+p.Channel, fmt.Sprintf("channel %s/%s holds its dead messages: user %s set its policy and may no longer publish to %s",
			p.Topic, p.Channel, p.Owner, p.DeadLetterTopic))
	}
	f.raise(r, PolicyHeld, heldDo)
}

func (r *Report) idle(o Own) {
	f := finding{unlisted: o.IdleChannelCount - len(o.IdleChannels)}
	for _, c := range o.IdleChannels {
		f.add(c.Topic+"/"+c.Channel, fmt.Sprintf("channel %s/%s will be deleted with its messages at %s: unused for %s", c.Topic, c.Channel,
			time.UnixMilli(c.DeletesAtMS).UTC().Format("2006-01-02 15:04:05 UTC"), about(time.Duration(c.IdleMS)*time.Millisecond)))
	}
	f.raise(r, ChannelIdle, idleDo)
}

// finding is a fault at several locations.
type finding struct {
	where, texts []string
	unlisted     int // further faults without a text
}

func (f *finding) add(where, text string) {
	f.texts = append(f.texts, text)
	if !slices.Contains(f.where, where) {
		f.where = append(f.where, where)
	}
}

// textsOf is the number of faults that the text of an alarm describes; its locations are all listed.
const textsOf = 3

func (f *finding) raise(r *Report, code, do string) {
	if f == nil || len(f.texts) == 0 {
		return
	}
	shown := f.texts[:min(textsOf, len(f.texts))]
	text := strings.Join(shown, "; ")
	if more := len(f.texts) - len(shown) + max(0, f.unlisted); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	r.raise(Degraded, code, f.where, text, do)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// expiry describes when a certificate expires, or that it has expired.
func expiry(left time.Duration) string {
	if left < 0 {
		return "expired " + about(-left) + " ago"
	}
	return "expires in " + about(left)
}

// about rounds a duration for human readers.
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
