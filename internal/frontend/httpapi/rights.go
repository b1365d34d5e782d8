package httpapi

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
)

// Rule says what a route takes.
type Rule struct {
	Method, Path string
	Right        access.Right
	// Topic: the right is one on the topic in ?topic=.
	Topic bool
	// Channel is what an auth service is asked for where the request names no channel.
	Channel string
	// named: it is asked for the channel in ?channel=.
	named bool
	// Audited: it changes something, or shows what only an administrator sees.
	Audited bool
	// first: the first administrator may be made by it without a right, by a secret.
	first bool
	// also are rights that depend on further arguments; nil = none.
	also func(url.Values) []guard.Need
}

// peekChannel is the channel that an auth service must allow for peeking: a pattern that
// matches any channel does, a list of names does not.
const peekChannel = "#peek"

// The rights of all routes. A route without a row here is not served: the router panics
// where it is made, in every test. docs/reference/rights.md is generated from these tables.
var (
	commonRules = []Rule{
		{Method: "GET", Path: "/ping"},
		{Method: "GET", Path: "/info", Right: access.Observe},
		{Method: "GET", Path: "/lookup", Right: access.Discover, Topic: true},
		{Method: "GET", Path: "/listlookup", Right: access.Observe},
		{Method: "GET", Path: "/topics", Right: access.Observe},
		{Method: "GET", Path: "/channels", Right: access.Discover, Topic: true},
		{Method: "GET", Path: "/nodes", Right: access.Observe},
		{Method: "GET", Path: "/debug", Right: access.Observe},
		{Method: "POST", Path: "/topic/tombstone", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/topic/create", Right: access.Administer, Topic: true, Audited: true},
		{Method: "GET", Path: "/debug/pprof", Right: access.AdministerCluster, Audited: true},
		{Method: "GET", Path: "/debug/pprof/", Right: access.AdministerCluster, Audited: true},
		{Method: "GET", Path: "/debug/pprof/cmdline", Right: access.AdministerCluster, Audited: true},
		{Method: "GET", Path: "/debug/pprof/symbol", Right: access.AdministerCluster, Audited: true},
		{Method: "POST", Path: "/debug/pprof/symbol", Right: access.AdministerCluster, Audited: true},
		{Method: "GET", Path: "/debug/pprof/profile", Right: access.AdministerCluster, Audited: true},
		{Method: "GET", Path: "/debug/pprof/heap", Right: access.AdministerCluster, Audited: true},
		{Method: "GET", Path: "/debug/pprof/goroutine", Right: access.AdministerCluster, Audited: true},
		{Method: "GET", Path: "/debug/pprof/block", Right: access.AdministerCluster, Audited: true},
		{Method: "GET", Path: "/debug/pprof/threadcreate", Right: access.AdministerCluster, Audited: true},
		{Method: "PUT", Path: "/debug/setblockrate", Right: access.AdministerCluster, Audited: true},
		{Method: "POST", Path: "/debug/freememory", Right: access.AdministerCluster, Audited: true},
	}
	nsqdRules = []Rule{
		{Method: "GET", Path: "/healthz"},
		{Method: "GET", Path: "/readyz"},
		{Method: "GET", Path: "/stats", Right: access.Observe},
		{Method: "GET", Path: "/metrics", Right: access.Observe},
		{Method: "GET", Path: "/v1/cluster", Right: access.Observe},
		{Method: "GET", Path: "/v1/partition/digest", Right: access.Observe},
		{Method: "GET", Path: "/config/:opt", Right: access.Observe},
		{Method: "PUT", Path: "/config/:opt", Right: access.AdministerCluster, Audited: true},
		{Method: "POST", Path: "/pub", Right: access.Publish, Topic: true},
		{Method: "POST", Path: "/mpub", Right: access.Publish, Topic: true},
		{Method: "POST", Path: "/v1/topic/append", Right: access.Publish, Topic: true}, // reserved headers: see mayReserve
		{Method: "GET", Path: "/v1/topic/peek", Right: access.Consume, Topic: true, Channel: peekChannel},
		{Method: "GET", Path: "/v1/trace", Right: access.Consume, Topic: true, Channel: peekChannel},
		{Method: "POST", Path: "/v1/consume", Right: access.Consume, Topic: true, named: true},
		{Method: "POST", Path: "/v1/finish", Right: access.Consume, Topic: true, named: true},
		{Method: "POST", Path: "/v1/requeue", Right: access.Consume, Topic: true, named: true},
		{Method: "POST", Path: "/v1/touch", Right: access.Consume, Topic: true, named: true},
		{Method: "POST", Path: "/topic/delete", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/v1/topic/undelete", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/v1/topic/purge", Right: access.Administer, Topic: true, Audited: true},
		{Method: "GET", Path: "/v1/topic/trash", Right: access.Observe},
		{Method: "GET", Path: "/v1/cluster/limits", Right: access.Observe},
		{Method: "POST", Path: "/topic/empty", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/topic/pause", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/topic/unpause", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/channel/create", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/channel/delete", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/channel/empty", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/channel/pause", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/channel/unpause", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/channel/setorder", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/v1/channel/seek", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/v1/channel/finish", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/v1/channel/policy", Right: access.Administer, Topic: true, Audited: true, also: deadLetters},
		{Method: "GET", Path: "/v1/channel/policy", Right: access.Discover, Topic: true},
		{Method: "GET", Path: "/v1/topic/channels", Right: access.Discover, Topic: true},
		{Method: "GET", Path: "/v1/topic/positions", Right: access.Discover, Topic: true},
		{Method: "GET", Path: "/v1/channel/deferred", Right: access.Administer, Topic: true},
		{Method: "POST", Path: "/v1/channel/deferred/cancel", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/v1/channel/redrive", Right: access.Administer, Topic: true, Audited: true},
		{Method: "GET", Path: "/v1/topic/move", Right: access.Observe},
		{Method: "GET", Path: "/v1/cluster/balance", Right: access.Observe},
		{Method: "GET", Path: "/v1/broker/decommission", Right: access.Observe},
		{Method: "GET", Path: "/v1/broker/drain", Right: access.Observe},
		{Method: "POST", Path: "/v1/topic/move", Right: access.AdministerCluster, Audited: true},
		{Method: "POST", Path: "/v1/topic/replication", Right: access.AdministerCluster, Audited: true},
		{Method: "POST", Path: "/v1/topic/partitions", Right: access.AdministerCluster, Audited: true},
		{Method: "POST", Path: "/v1/topic/set", Right: access.Administer, Topic: true, Audited: true},
		{Method: "GET", Path: "/v1/topic/recover", Right: access.AdministerCluster, Audited: true},
		{Method: "POST", Path: "/v1/topic/recover", Right: access.AdministerCluster, Audited: true},
		{Method: "POST", Path: "/v1/cluster/balance", Right: access.AdministerCluster, Audited: true},
		{Method: "GET", Path: "/v1/cluster/invite", Right: access.AdministerCluster},
		{Method: "POST", Path: "/v1/cluster/invite", Right: access.AdministerCluster, Audited: true},
		{Method: "POST", Path: "/v1/broker/decommission", Right: access.AdministerCluster, Audited: true},
		{Method: "POST", Path: "/v1/broker/drain", Right: access.AdministerCluster, Audited: true},
		{Method: "GET", Path: "/ui"}, // the console's files: nothing about the cluster is in them
		{Method: "GET", Path: "/ui/app.js"},
		{Method: "GET", Path: "/ui/app.css"},
		{Method: "GET", Path: "/ui/icon.svg"},
		{Method: "GET", Path: "/ui/licences"},
		{Method: "GET", Path: "/ui/data", Right: access.Observe},
	}
	lookupRules = []Rule{
		// These delete nothing; see the package comment.
		{Method: "POST", Path: "/topic/delete", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/channel/create", Right: access.Administer, Topic: true, Audited: true},
		{Method: "POST", Path: "/channel/delete", Right: access.Administer, Topic: true, Audited: true},
	}
)

// NSQDRules and LookupRules are what the two handlers serve, for docs/reference/rights.md.
func NSQDRules() []Rule {
	return slices.Concat(commonRules, nsqdRules, userRules, consoleRules, sessionRules)
}

// LookupRules are the rules of the separate lookup port.
func LookupRules() []Rule { return slices.Concat(commonRules, lookupRules) }

// deadLetters: messages of a channel go to the topic that its policy names, so the
// client that sets it needs the right to publish there.
func deadLetters(values url.Values) []guard.Need {
	if topic := values.Get("dead_letter_topic"); topic != "" {
		return []guard.Need{{Right: access.Publish, Topic: topic}}
	}
	return nil
}

// needs are the rights that a request takes. The topic is read as the endpoints read it:
// the first value of the query string.
func (rule Rule) needs(r *http.Request) []guard.Need {
	need := guard.Need{Right: rule.Right, Channel: rule.Channel}
	values, _ := url.ParseQuery(r.URL.RawQuery) // the endpoint refuses a malformed query
	if rule.Topic {
		need.Topic = values.Get("topic")
	}
	if rule.named {
		need.Channel = values.Get("channel")
	}
	needs := []guard.Need{need}
	if rule.also != nil {
		needs = append(needs, rule.also(values)...)
	}
	return needs
}
