package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/config"
)

func TestCollector(t *testing.T) {
	for endpoint, want := range map[string]struct {
		address string
		plain   bool
	}{
		"collector.example:4317":         {"collector.example:4317", false},
		"http://collector.example:4317":  {"collector.example:4317", true},
		"https://collector.example:4317": {"collector.example:4317", false},
		"https://127.0.0.1:4317/":        {"127.0.0.1:4317", false},
		"127.0.0.1:4317":                 {"127.0.0.1:4317", true},
		"localhost:4317":                 {"localhost:4317", true},
		"[::1]:4317":                     {"[::1]:4317", true},
	} {
		address, plain, err := config.Collector(endpoint)
		require.NoError(t, err, endpoint)
		require.Equal(t, want.address, address)
		require.Equal(t, want.plain, plain, endpoint)
	}
	for _, endpoint := range []string{"another", ":4317", "ftp://a:1", "http://a:1/path", "http://user@a:1", "http://a", "a:"} {
		_, _, err := config.Collector(endpoint)
		require.Error(t, err, endpoint)
	}
}
