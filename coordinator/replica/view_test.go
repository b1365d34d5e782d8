package replica

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// TestViewsDifferInEachField: a field that Equal forgets would never be published.
func TestViewsDifferInEachField(t *testing.T) {
	plain := &View{ISR: []ident.Member{{Node: "n1"}}, Replicas: []ident.Node{"n1"}}
	same := &View{ISR: []ident.Member{{Node: "n1"}}, Replicas: []ident.Node{"n1"}}
	require.True(t, plain.Equal(same), "other slices with the same members")
	for i := range reflect.TypeFor[View]().NumField() {
		other := *plain
		change(reflect.ValueOf(&other).Elem().Field(i))
		require.False(t, plain.Equal(&other), reflect.TypeFor[View]().Field(i).Name)
		require.False(t, other.Equal(plain), reflect.TypeFor[View]().Field(i).Name)
	}
}

// change makes a value another one, of the first thing in it that can be.
func change(v reflect.Value) {
	switch {
	case v.CanUint():
		v.SetUint(v.Uint() + 1)
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.Kind() == reflect.Slice:
		v.SetZero()
	default:
		change(v.Field(0))
	}
}
