package dedupe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

func form(nowMS int64, write func(w *CanonicalWriter)) string {
	w := CanonicalWriter{NowMS: nowMS}
	write(&w)
	return string(w.B)
}

// TestAgesBeyondTheDeadlineAreEqual: a state at rest has one form, however long it rests.
func TestAgesBeyondTheDeadlineAreEqual(t *testing.T) {
	age := func(nowMS, ms int64) string { return form(nowMS, func(w *CanonicalWriter) { w.Age(ms, 100) }) }
	require.Equal(t, age(50, 20), age(1050, 1020), "the age counts, not the moment")
	require.NotEqual(t, age(50, 20), age(51, 20))
	require.NotEqual(t, age(120, 20), age(121, 20), "at the deadline, and beyond it")
	require.Equal(t, age(121, 20), age(5000, 20))
	require.NotEqual(t, age(50, 60), age(50, 50), "a moment in the future")
}

// TestValuesAreToldApart: neighbours do not run into each other.
func TestValuesAreToldApart(t *testing.T) {
	forms := map[string]bool{}
	for _, write := range []func(*CanonicalWriter){
		func(w *CanonicalWriter) { w.Num(1, 300) },
		func(w *CanonicalWriter) { w.Num(300, 1) },
		func(w *CanonicalWriter) { w.Node("ab"); w.Node("c") },
		func(w *CanonicalWriter) { w.Node("a"); w.Node("bc") },
		func(w *CanonicalWriter) { w.Pos(ident.Position{Offset: 7, Sequence: 8}) },
		func(w *CanonicalWriter) { w.Pos(ident.Position{Offset: 8, Sequence: 7}) },
		func(w *CanonicalWriter) { w.Flags(true, false) },
		func(w *CanonicalWriter) { w.Flags(false, true) },
	} {
		f := form(0, write)
		require.False(t, forms[f])
		forms[f] = true
	}
}
