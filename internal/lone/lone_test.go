package lone

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneAfterTheOtherIsAlone(t *testing.T) {
	var c Count
	for range 3 {
		require.True(t, c.Enter())
		require.EqualValues(t, 1, c.N())
		require.True(t, c.Leave())
		require.Zero(t, c.N())
	}
}

// The first and the last of many look as if they were alone.
func TestManyAreNotAlone(t *testing.T) {
	var c Count
	require.True(t, c.Enter(), "nobody knows yet")
	for range 5 {
		require.False(t, c.Enter())
		require.False(t, c.Enter())
		require.False(t, c.Leave())
		require.False(t, c.Leave())
		require.False(t, c.Leave())
		require.False(t, c.Enter())
	}
}

func TestCompanyIsForgotten(t *testing.T) {
	var c Count
	c.Enter()
	c.Enter()
	c.Leave()
	c.Leave()
	for range lately {
		require.False(t, c.Enter())
		c.Leave()
	}
	require.True(t, c.Enter())
	require.True(t, c.Leave())
}
