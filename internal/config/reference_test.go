package config_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/config"
)

// TestReference: docs/reference/nsqd.md has the settings of this build.
func TestReference(t *testing.T) {
	const document = "../../docs/reference/nsqd.md"
	var b strings.Builder
	b.WriteString("# Settings of nsqd\n\nThis page is generated from the code (`make reference`).\n\n" +
		"How settings are given, and which source takes precedence: [running brokers](../operations/run.md#settings). In the file `_` takes the place of `-`, unless the\n" +
		"list has another name. Defaults are in parentheses; without them a setting is empty or off. `nsqd --help` has the settings of a new cluster. Most clusters never change\n" +
		"the others: `nsqd --help-all` and [packaging/nsqd.toml](../../packaging/nsqd.toml) say of each when to change it.\n")
	config.Reference(&b)
	if *rewrite {
		require.NoError(t, os.WriteFile(document, []byte(b.String()), 0o644))
	}
	stands, err := os.ReadFile(document)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(stands), "the settings have changed: make reference")
}
