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
		"Every flag may be given as `-flag value` or `--flag=value`, as an environment variable (`--tcp-address` is `NSQD_TCP_ADDRESS`), or in the TOML file of\n" +
		"`--config` (`tcp_address = \"…\"`: `_` in place of `-`, unless the list has another name). A flag beats the environment, which beats the file, which beats\n" +
		"the default. Secrets are in the environment or in files of their own. `nsqd --check-config` checks settings, `nsqd --print-config` prints those in effect\n" +
		"with their sources. [packaging/nsqd.toml](../../packaging/nsqd.toml) is a file with every setting, explained. Defaults are in\n" +
		"parentheses; without them a setting is empty or off.\n" +
		"`nsqd --help` has the settings of a new cluster, `nsqd --help-all` all of them: most clusters never change a setting with \"change it when\".\n")
	config.Reference(&b)
	if *rewrite {
		require.NoError(t, os.WriteFile(document, []byte(b.String()), 0o644))
	}
	stands, err := os.ReadFile(document)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(stands), "the settings have changed: make reference")
}
