package option_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/option"
)

// TestEveryFieldOfAPolicyHasARow: each row reads and merges its own field only. Owner is no option.
func TestEveryFieldOfAPolicyHasARow(t *testing.T) {
	fields := reflect.TypeFor[option.Policy]()
	require.Len(t, option.Policies, fields.NumField()-1)
	values := map[string]string{"max_attempts": "7", "retry_backoff": "1s,3,5m,0.5"}
	all := option.Policy{MaxAttempts: 7, DeadLetterTopic: "text", Filter: "text", Backoff: option.Backoff{BaseMS: 1000, Factor: 3, MaxMS: 300_000, Jitter: 0.5}}
	for i := range option.Policies {
		r := &option.Policies[i]
		value, ok := values[r.Name]
		if !ok {
			value = "text"
		}
		var c option.Change[option.Policy]
		require.NoError(t, c.Read(r, value), r.Name)
		require.True(t, c.Has(r.Name))
		var p option.Policy
		c.Apply(&p)
		for n := range fields.NumField() {
			field := reflect.ValueOf(p).Field(n)
			require.Equal(t, n != i, field.IsZero(), "%s sets field %s", r.Name, fields.Field(n).Name)
			require.True(t, field.IsZero() || field.Interface() == reflect.ValueOf(all).Field(n).Interface(), r.Name)
		}
		c = option.Change[option.Policy]{}
		require.NoError(t, c.Read(r, ""), "an empty value clears %s", r.Name)
		c.Apply(&p)
		require.Zero(t, p, r.Name)
		require.NotEmpty(t, r.Help, r.Name)
	}
}
