package dedupe

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCloneKnowsEveryField: a new field must be added to Clone and Canonical, and then here.
func TestCloneKnowsEveryField(t *testing.T) {
	known := map[reflect.Type]string{
		reflect.TypeFor[Requests]():   "producers windowMS restored",
		reflect.TypeFor[producer]():   "order gone maxN",
		reflect.TypeFor[numbered]():   "n first end atMS count",
		reflect.TypeFor[Window]():     "LengthMS bound budget entries clockMS sinceMS ticked below forgotten",
		reflect.TypeFor[identities](): "first next blocks spare index",
		reflect.TypeFor[index]():      "tables",
		reflect.TypeFor[table]():      "slots used",
		reflect.TypeFor[identified](): "identity seq at end clock",
	}
	for typ, fields := range known {
		var have []string
		for i := range typ.NumField() {
			have = append(have, typ.Field(i).Name)
		}
		require.Equal(t, fields, strings.Join(have, " "), "%s: is the new field in Clone and in Canonical?", typ)
	}
}

// TestCanonicalTellsApart: an entry, its age and what is not known are part of the canonical form; a clone has
// the form of its original, and time beyond the window does not count.
func TestCanonicalTellsApart(t *testing.T) {
	r, d := NewRequests(100), NewWindow(100, 10, nil)
	at := func(nowMS int64) string {
		w := CanonicalWriter{NowMS: nowMS}
		r.Canonical(&w)
		d.Canonical(&w)
		return string(w.B)
	}
	seen := map[string]bool{at(0): true}
	differs := func(nowMS int64) {
		t.Helper()
		require.False(t, seen[at(nowMS)])
		seen[at(nowMS)] = true
	}
	r.push(putNumber(1, 1, 1), 10)
	differs(10)
	require.Equal(t, at(1000), at(2000))
	d.Tick(10)
	differs(10)
	d.Add(putAt("a", 0, 2), 10)
	differs(10)
	differs(11)
	before := at(10)
	r, d = r.Clone(), d.Clone()
	require.Equal(t, before, at(10))
	d.Restart(500, 7)
	differs(10)
}
