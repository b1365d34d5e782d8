package main

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// leaves calls f for every command without subcommands.
func leaves(cmd *cobra.Command, f func(*cobra.Command)) {
	if cmd.Runnable() {
		f(cmd)
	}
	for _, sub := range cmd.Commands() {
		leaves(sub, f)
	}
}

// TestEveryCommandHasAnExample: --help must be enough to use a command.
func TestEveryCommandHasAnExample(t *testing.T) {
	leaves(newRoot(), func(cmd *cobra.Command) {
		require.NotEmpty(t, cmd.Short, cmd.CommandPath())
		require.Contains(t, cmd.Example, cmd.CommandPath(), "a line that can be copied")
	})
}

func TestErrorsNameTheFault(t *testing.T) {
	for want, args := range map[string][]string{
		`--output is text, table, wide, json or yaml, not "xml"`:                   {"topic", "list", "-o", "xml"},
		`there is no command "nsqctl topics"; did you mean topic?`:                 {"topics"},
		`there is no command "nsqctl topic delte"; did you mean delete?`:           {"topic", "delte", "orders"},
		`there is no command "nsqctl topic xyzzy"; nsqctl topic --help lists them`: {"topic", "xyzzy"},
		"--count=x: must be a whole number":                                        {"tail", "--topic", "t", "-n", "x"},
		"--interval=5: must be a duration such as 250ms or 1m30s":                  {"stats", "--interval", "5"},
		"--nsqd-http-address=http://a:1: must be host:port":                        {"stats", "--nsqd-http-address", "http://a:1"},
		"--nsqd-tcp-address=4150: must be host:port":                               {"pub", "--topic", "t", "--nsqd-tcp-address", "4150"},
		`required flag(s) "topic" not set`:                                         {"pub"},
		"accepts 2 arg(s), received 1":                                             {"channel", "pause", "orders"},
		"open nothing.jsonl: no such file":                                         {"pub", "--topic", "orders", "nothing.jsonl"},
		"127.0.0.1:1: nothing listens there":                                       {"topic", "list", "--nsqd-http-address", "127.0.0.1:1"},
		"--tls-cert, --tls-key: open nothing.pem":                                  {"topic", "list", "--tls-cert", "nothing.pem"},
		"--tls-root-ca-file: no certificate in":                                    {"topic", "list", "--tls-root-ca-file", "help_test.go"},
		"there is no flag --tpic; did you mean --topic?":                           {"pub", "--tpic", "orders"},
		"there is no flag --no-such-flag; nsqctl stats --help lists them":          {"stats", "--no-such-flag"},
		"there is no flag -z; nsqctl stats --help lists them":                      {"stats", "-z"},
	} {
		_, err := run(t, time.Minute, args...)
		require.ErrorContains(t, err, want)
	}
}
