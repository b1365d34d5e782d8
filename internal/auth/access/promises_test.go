package access_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/access"
)

// TestPromiseANameCannotBeGuessedByTime: a token of nobody costs as much as one of a user.
func TestPromiseANameCannotBeGuessedByTime(t *testing.T) {
	r, _ := registry(t, access.Options{})
	_, err := r.Create(t.Context(), access.NewUser{Name: "root", Admin: true})
	require.NoError(t, err)
	_, err = r.Create(t.Context(), access.NewUser{Name: "certified", Certificate: true})
	require.NoError(t, err)
	least := func(name string) time.Duration {
		shortest := time.Hour
		for range 1000 {
			began := time.Now()
			_, err := r.Verify(name + "." + strings.Repeat("x", 43))
			require.ErrorIs(t, err, access.ErrBadToken)
			shortest = min(shortest, time.Since(began))
		}
		return shortest
	}
	known := least("root")
	for _, name := range []string{"nobody", "certified", "anonymous", "bootstrap"} {
		took := least(name)
		require.Greater(t, 3*took, known, "%s: %v, and a user's %v", name, took, known)
		require.Less(t, took, 3*known, "%s: %v, and a user's %v", name, took, known)
	}
}
