package cli

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// TestTheUsageCountsTheArguments: words, optional and repeated ones; a flag in the usage is no argument.
func TestTheUsageCountsTheArguments(t *testing.T) {
	for use, accepted := range map[string][]int{
		"stats":                      {0},
		"set NAME":                   {1},
		"use [NAME]":                 {0, 1},
		"order TOPIC CHANNEL on|off": {3},
		"cancel TOPIC ID...":         {2, 3, 4},
		"logs [NAME...]":             {0, 1, 2, 3, 4},
		"pub --topic TOPIC [FILE]":   {0, 1},
		"trace ID --topic TOPIC":     {1},
	} {
		check, got := argumentsOf(use), []int(nil)
		for n := range 5 {
			if check(&cobra.Command{Use: use}, make([]string, n)) == nil {
				got = append(got, n)
			}
		}
		require.Equal(t, accepted, got, use)
	}
}
