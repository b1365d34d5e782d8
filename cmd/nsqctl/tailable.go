package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

const (
	// lookups is how often a topic or a channel is looked for: it may just have been made at another broker.
	lookups = 3
	// lookupTimeout bounds one question. Without an answer tail continues.
	lookupTimeout = 2 * time.Second
)

// tailable refuses a topic or a channel that does not exist: to subscribe would make it. Without an answer of the
// lookup API it refuses nothing.
func tailable(cmd *cobra.Command, t *cli.Target, lookupd, topic, channel string) error {
	ask := t.Client
	ask.Addresses = lookupAddresses(cmd, t, lookupd)
	if tls, is := strings.CutPrefix(lookupd, "https://"); is {
		ask.TLS, ask.Addresses = true, []string{tls}
	}
	for try := 1; ; try++ {
		missing := missingAt(cmd.Context(), &ask, topic, channel)
		if missing == nil || try == lookups || cmd.Context().Err() != nil {
			return missing
		}
		concurrency.Sleep(cmd.Context(), checkEvery)
	}
}

// lookupAddresses are where the brokers of tail answer HTTP. Of a broker whose TCP address alone is given, the HTTP
// port is the next one, as by default.
func lookupAddresses(cmd *cobra.Command, t *cli.Target, lookupd string) []string {
	switch {
	case lookupd != "":
		return []string{strings.TrimPrefix(lookupd, "http://")}
	case cmd.Flags().Changed("nsqd-http-address") || !cmd.Flags().Changed("nsqd-tcp-address"):
		return t.Addresses
	}
	var all []string
	for _, address := range t.TCP {
		host, text, err := net.SplitHostPort(address)
		port, err2 := strconv.Atoi(text)
		if err != nil || err2 != nil {
			continue
		}
		if port++; t.TLS {
			port++
		}
		all = append(all, net.JoinHostPort(host, strconv.Itoa(port)))
	}
	return all
}

// missingAt asks the lookup API. nil: both exist, or that is unknown.
func missingAt(ctx context.Context, ask *brokerapi.Client, topic, channel string) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if len(ask.Addresses) == 0 {
		return nil
	}
	answer, err := ask.CallAny(ctx, http.MethodGet, "/lookup", url.Values{"topic": {topic}})
	if brokerapi.Status(err) == http.StatusNotFound && strings.Contains(err.Error(), "TOPIC_NOT_FOUND") {
		return cli.ExitError{Code: cli.ExitNotFound, Err: fmt.Errorf("there is no topic %q, and tail makes none: nsqctl topic list, nsqctl topic create", topic)}
	}
	var found struct{ Channels, Producers *[]any }
	if err != nil || json.Unmarshal(answer, &found) != nil || found.Channels == nil || found.Producers == nil {
		return nil
	}
	if channel == "" || strings.HasSuffix(channel, api.EphemeralSuffix) || slices.Contains(*found.Channels, any(channel)) {
		return nil
	}
	return cli.ExitError{Code: cli.ExitNotFound, Err: fmt.Errorf("topic %s has no channel %q, and tail makes none: nsqctl channel list %s, nsqctl channel create %s %s", topic, channel, topic, topic, channel)}
}
