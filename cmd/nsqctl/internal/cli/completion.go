package cli

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/api"
)

// completionTimeout bounds what a shell waits for names.
const completionTimeout = 2 * time.Second

// completeNames gives every command the completion of its arguments by the words of its usage:
// TOPIC, CHANNEL and BROKER. Other arguments are completed as files.
func (t *Target) completeNames(cmd *cobra.Command) {
	if words := strings.Fields(cmd.Use)[1:]; cmd.Runnable() && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) >= len(words) {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			names, known := t.namesOf(cmd, words[len(args)], args)
			if !known {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		}
	}
	for _, sub := range cmd.Commands() {
		t.completeNames(sub)
	}
}

// namesOf returns the names that an argument may have. Without an answer in time there are none.
func (t *Target) namesOf(cmd *cobra.Command, word string, args []string) (names []string, known bool) {
	if word != "TOPIC" && word != "CHANNEL" && word != "BROKER" {
		return nil, false
	}
	if t.prepare(cmd) != nil {
		return nil, true
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background() // a completion runs without the context of main
	}
	ctx, cancel := context.WithTimeout(parent, completionTimeout)
	defer cancel()
	var answer struct {
		Topics   []string `json:"topics"`
		Channels []string `json:"channels"`
	}
	switch word {
	case "TOPIC":
		_ = t.GetAny(ctx, "/topics", nil, &answer)
		return answer.Topics, true
	case "CHANNEL":
		if len(args) > 0 {
			_ = t.GetAny(ctx, "/channels", url.Values{"topic": args[:1]}, &answer)
		}
		return answer.Channels, true
	}
	var v api.ClusterView
	_ = t.GetAny(ctx, "/v1/cluster", nil, &v)
	for _, b := range v.Brokers {
		names = append(names, string(b.Name))
	}
	return names, true
}
