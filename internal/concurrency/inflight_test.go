package concurrency

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneAfterTheOtherIsUncontended(t *testing.T) {
	var c InFlight
	for range 3 {
		require.True(t, c.Enter())
		require.EqualValues(t, 1, c.N())
		require.True(t, c.Leave())
		require.Zero(t, c.N())
	}
}

// The first and the last of many find the count at zero, too.
func TestManyAreContended(t *testing.T) {
	var c InFlight
	require.True(t, c.Enter(), "there was no contention yet")
	for range 5 {
		require.False(t, c.Enter())
		require.False(t, c.Enter())
		require.False(t, c.Leave())
		require.False(t, c.Leave())
		require.False(t, c.Leave())
		require.False(t, c.Enter())
	}
}

func TestContentionIsForgotten(t *testing.T) {
	var c InFlight
	c.Enter()
	c.Enter()
	c.Leave()
	c.Leave()
	for range remembered {
		require.False(t, c.Enter())
		c.Leave()
	}
	require.True(t, c.Enter())
	require.True(t, c.Leave())
}
