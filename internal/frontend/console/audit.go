package console

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/lockstepmq/lockstep/internal/auth/guard"
)

// deed is an audited action in words: its verb in the past, the verb itself, and the object. {name} is the argument name of the
// request. A part in brackets is left out if its argument is missing.
type deed struct{ past, verb, object string }

// deeds are the audited routes. A key with ?cancel or ?withdraw is the route with that argument set to true.
var deeds = map[string]deed{
	"POST /v1/user/create": {"created", "create", "the user {name}"},
	"POST /v1/user/rotate": {"gave", "give", "the user {name} a new token"},
	"POST /v1/user/delete": {"deleted", "delete", "the user {name}"},
	"POST /v1/user/quota":  {"changed", "change", "the quota of the user {name}"},
	"POST /v1/acl/grant":   {"gave", "give", "the user {user}[ the rights {rights}][ on the topics {topic}][ the right to {cluster} the cluster]"},
	"POST /v1/acl/revoke":  {"took", "take", "from the user {user}[ the rights {rights}][ on the topics {topic}][ the right to {cluster} the cluster]"},

	"POST /v1/session":        {"signed in", "sign in", "to the console"},
	"POST /v1/session/logout": {"signed out", "sign out", "of the console"},

	"POST /topic/create":         {"created", "create", "the topic {topic}[ with {partitions} partitions]"},
	"POST /topic/delete":         {"deleted", "delete", "the topic {topic}"},
	"POST /topic/empty":          {"emptied", "empty", "the topic {topic}"},
	"POST /topic/pause":          {"paused", "pause", "the topic {topic}"},
	"POST /topic/unpause":        {"resumed", "resume", "the topic {topic}"},
	"POST /topic/tombstone":      {"hid", "hide", "the broker {node} from lookups of the topic {topic}"},
	"POST /v1/topic/undelete":    {"restored", "restore", "the deleted topic {topic}"},
	"POST /v1/topic/purge":       {"purged", "purge", "the deleted topic {topic}"},
	"POST /v1/topic/move":        {"moved", "move", "the replica of {topic}/{partition} from {from} to {to}"},
	"POST /v1/topic/set":         {"changed", "change", "settings of the topic {topic}"},
	"POST /v1/topic/partitions":  {"raised", "raise", "the partitions of the topic {topic} to {partitions}"},
	"POST /v1/topic/replication": {"changed", "change", "the replication of the topic {topic}"},
	"GET /v1/topic/recover":      {"inspected", "inspect", "the replicas of the lost partition {topic}[/{partition}]"},
	"POST /v1/topic/recover":     {"recovered", "recover", "the lost partition {topic}[/{partition}][ from the replica on {from}][ without the replica on {discard}]"},

	"POST /channel/create":             {"created", "create", "the channel {topic}/{channel}"},
	"POST /channel/delete":             {"deleted", "delete", "the channel {topic}/{channel}"},
	"POST /channel/empty":              {"emptied", "empty", "the channel {topic}/{channel}"},
	"POST /channel/pause":              {"paused", "pause", "the channel {topic}/{channel}"},
	"POST /channel/unpause":            {"resumed", "resume", "the channel {topic}/{channel}"},
	"POST /channel/setorder":           {"changed", "change", "the order of the channel {topic}/{channel}"},
	"POST /v1/channel/seek":            {"moved", "move", "the channel {topic}/{channel} to {to}"},
	"POST /v1/channel/finish":          {"finished", "finish", "messages of the channel {topic}/{channel}"},
	"POST /v1/channel/policy":          {"changed", "change", "the policy of the channel {topic}/{channel}"},
	"POST /v1/channel/deferred/cancel": {"cancelled", "cancel", "delayed messages of the channel {topic}/{channel}"},
	"POST /v1/channel/redrive":         {"redrove", "redrive", "dead letters to the channel {topic}/{channel}"},

	"POST /v1/cluster/invite":             {"invited", "invite", "the broker {node}[ for {for}]"},
	"POST /v1/cluster/invite?withdraw":    {"withdrew", "withdraw", "the invitation of the broker {node}"},
	"POST /v1/cluster/balance":            {"balanced", "balance", "the cluster"},
	"POST /v1/broker/decommission":        {"began", "begin", "to decommission the broker {node}"},
	"POST /v1/broker/decommission?cancel": {"cancelled", "cancel", "the decommission of the broker {node}"},
	"POST /v1/broker/drain":               {"began", "begin", "to drain the broker {node}"},
	"POST /v1/broker/drain?cancel":        {"ended", "end", "the drain of the broker {node}"},
	"POST /debug/freememory":              {"freed", "free", "memory of the broker"},
	"PUT /debug/setblockrate":             {"changed", "change", "the rate of the broker's block profile"},
}

// deedOf finds the words of an action, and removes the arguments that the words already mention.
func deedOf(action string, about url.Values) (d deed, known bool) {
	for _, flag := range []string{"cancel", "withdraw"} {
		if about.Get(flag) == "true" {
			if d, known = deeds[action+"?"+flag]; known {
				about.Del(flag)
				return d, true
			}
		}
	}
	if d, known = deeds[action]; known {
		return d, true
	}
	if option, ok := strings.CutPrefix(action, "PUT /config/"); ok {
		return deed{"changed", "change", "the setting " + option}, true
	}
	if _, profile, ok := strings.Cut(action, " /debug/pprof"); ok {
		return deed{"read", "read", strings.TrimSpace("the profile " + strings.TrimPrefix(profile, "/"))}, true
	}
	return deed{}, false
}

// AuditSentence describes an audited action and its author. Arguments that the sentence does not mention follow it.
func AuditSentence(e *guard.Entry) string {
	about, _ := url.ParseQuery(e.Detail)
	d, known := deedOf(e.Action, about)
	switch {
	case e.Implied && e.Result == guard.ResultOK:
		return fmt.Sprintf("%s %s, by %s", e.Identity, e.Detail, e.Action)
	case e.Implied:
		return fmt.Sprintf("%s was refused, by %s: %s", e.Identity, e.Action, e.Detail)
	case !known:
		which := map[string]string{guard.ResultRefused: ", which was refused", guard.ResultFailed: ", which was not possible"}[e.Result]
		return strings.TrimSpace(fmt.Sprintf("%s requested %s %s", e.Identity, e.Action, e.Detail)) + which
	}
	object := fill(d.object, about)
	text := fmt.Sprintf("%s %s %s", e.Identity, d.past, object)
	switch e.Result {
	case guard.ResultRefused:
		text = fmt.Sprintf("%s was not allowed to %s %s", e.Identity, d.verb, object)
	case guard.ResultFailed:
		text = fmt.Sprintf("%s failed to %s %s", e.Identity, d.verb, object)
	}
	rest := make([]string, 0, len(about))
	for _, name := range slices.Sorted(maps.Keys(about)) {
		rest = append(rest, name+"="+strings.Join(about[name], ","))
	}
	if len(rest) > 0 {
		text += " (" + strings.Join(rest, ", ") + ")"
	}
	return text
}

// argument is an argument in an object, with its brackets if it has any.
var argument = regexp.MustCompile(`\[([^{\]]*)\{(\w+)\}([^\]]*)\]|\{(\w+)\}`)

// fill replaces {name} by the argument, and leaves out the brackets whose argument is missing. It removes the arguments that it
// has used.
func fill(object string, about url.Values) string {
	values := maps.Clone(about)
	return argument.ReplaceAllStringFunc(object, func(match string) string {
		m := argument.FindStringSubmatch(match)
		name := m[2] + m[4]
		value := values.Get(name)
		about.Del(name)
		switch {
		case value == "" && m[2] != "":
			return ""
		case value == "":
			value = "(no " + name + ")"
		}
		return m[1] + value + m[3]
	})
}
