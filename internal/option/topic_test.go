package option_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/option"
)

// valueOf returns a value for an option that differs from its default.
func valueOf(r *option.Row[option.Topic]) string {
	switch r.Kind {
	case option.Duration:
		return "5m"
	case option.Choice:
		return r.Choices[1]
	}
	return "7"
}

// zeroOf returns the value by which an option has its default.
func zeroOf(r *option.Row[option.Topic]) string {
	if r.Kind == option.Choice {
		return r.Choices[0]
	}
	return "0"
}

// TestEveryFieldHasARow: the rows have the order of the fields, and each reads, merges and shows its own field only.
func TestEveryFieldHasARow(t *testing.T) {
	fields := reflect.TypeFor[option.Topic]()
	require.Len(t, option.Topics, fields.NumField())
	for i := range option.Topics {
		r := &option.Topics[i]
		var c option.Change[option.Topic]
		require.NoError(t, c.Read(r, valueOf(r)), r.Name)
		var o option.Topic
		c.Apply(&o)
		for n := range fields.NumField() {
			require.Equal(t, n != i, reflect.ValueOf(o).Field(n).IsZero(), "%s sets field %s", r.Name, fields.Field(n).Name)
		}
		require.Equal(t, []string{r.Name + "=" + r.Show(o)}, o.Effective().Differing())
		require.NotEmpty(t, r.Help, r.Name)
		require.NotEmpty(t, r.Label, r.Name)

		require.NotEqual(t, option.Change[option.Topic]{}, c)
		c = option.Change[option.Topic]{}
		require.NoError(t, c.Read(r, zeroOf(r)), r.Name)
		require.NotEqual(t, option.Change[option.Topic]{}, c, "the default is a value, too: %s", r.Name)
		c.Apply(&o)
		require.Zero(t, o, r.Name)
	}
}

// TestAChangeKeepsTheRest: options that are not named stay as they are.
func TestAChangeKeepsTheRest(t *testing.T) {
	o := option.Topic{MaxBytes: 5, TTLMS: 6, Dedupe: option.DedupeContent}
	var c option.Change[option.Topic]
	for i := range option.Topics {
		if r := &option.Topics[i]; r.Name == "max_bytes" {
			require.NoError(t, c.Read(r, "0"))
		}
	}
	c.Apply(&o)
	require.Equal(t, option.Topic{TTLMS: 6, Dedupe: option.DedupeContent}, o)
	require.Equal(t, option.Effective{TTLMS: 6, Dedupe: option.DedupeContent, DedupeWindowMS: option.DefaultDedupeWindowMS}, o.Effective())
}

// TestNeedsGrace names the option that a broker without a --delete-grace cannot honour.
func TestNeedsGrace(t *testing.T) {
	require.Nil(t, option.Topic{RetentionMS: 1, Dedupe: option.DedupeContent}.NeedsGrace())
	require.Equal(t, "idle_after", option.Topic{IdleMS: 60_000}.NeedsGrace().Name)
	require.Equal(t, "channel-idle-after", option.Topic{ChannelIdleMS: 60_000}.NeedsGrace().Flag())
}
