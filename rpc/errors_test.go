package rpc

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/stretchr/testify/require"
)

func TestEveryRowSurvivesTheWire(t *testing.T) {
	codes := map[outcome.Code]bool{outcome.CodeUnknown: true, 0: true}
	for _, r := range rows {
		require.False(t, codes[r.code], "number %d is used twice", r.code)
		codes[r.code] = true
		wrapped := fmt.Errorf("step: %w", r.err)
		b, err := Marshal(fromError(wrapped))
		require.NoError(t, err)
		var got Error
		require.NoError(t, Unmarshal(b, &got))
		back := got.Err()
		require.ErrorIs(t, back, r.err)
		require.EqualError(t, back, wrapped.Error())
		require.Equal(t, r.class, ClassOf(back))
		for _, other := range rows {
			require.Equal(t, other.err == r.err, errors.Is(back, other.err))
		}
		require.Equal(t, &got, fromError(back), "a second hop changes nothing")
	}
}

func TestErrorsWithoutARow(t *testing.T) {
	require.Nil(t, fromError(nil))
	require.NoError(t, fromError(nil).Err())
	require.NoError(t, (&Error{}).Err())
	require.Zero(t, ClassOf(nil))
	odd := fromError(errors.New("odd"))
	require.Equal(t, outcome.ClassInDoubt, odd.Class)
	require.NotErrorIs(t, odd.Err(), outcome.ErrInDoubt)
	// A broker of a newer version sends a number that this one does not have.
	newer := &Error{Code: 9999, Class: outcome.ClassDefinite, Text: "new"}
	require.Equal(t, outcome.ClassDefinite, ClassOf(fmt.Errorf("wrapped: %w", newer.Err())))
	require.Len(t, fromError(errors.New(string(make([]byte, 5000)))).Text, maxErrorText)
	require.Equal(t, "rolled back", outcome.ClassRolledBack.String())
	require.Equal(t, "class(9)", outcome.Class(9).String())
}
