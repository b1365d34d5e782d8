// Package wiretest holds a package's structs on the wire to their bytes. A struct whose
// comment has the Mark must stand in the package's list with golden bytes, so that a
// field that is moved, removed or added in the middle fails a test, and not a cluster of
// two versions.
//
// It is for tests.
package wiretest

import (
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Mark is the sentence in the comment of a struct whose fields travel between brokers. A
// new field goes to the end, and the golden bytes of the test grow by it.
const Mark = "On the wire, by place: append only."

// Codec encodes a struct and decodes it into a pointer.
type Codec struct {
	Marshal   func(any) ([]byte, error)
	Unmarshal func([]byte, any) error
}

// Struct is one struct on the wire.
type Struct struct {
	Value  any    // a pointer; all its fields are filled if they are zero
	Golden string // its bytes, in hex
	// Own encodes a struct that does not travel by the codec; nil = by the codec. The structs
	// in its fields need no mark.
	Own *Codec
}

// Check compares the bytes of each struct with the golden ones and decodes them again. The
// structs must be those that have the Mark in the folder where the test runs. Structs of other packages may follow.
func Check(t *testing.T, c Codec, list []Struct) {
	t.Helper()
	names, listed := map[string]bool{}, map[reflect.Type]bool{}
	own := reflect.TypeOf(list[0].Value).Elem().PkgPath()
	for _, s := range list {
		v := reflect.ValueOf(s.Value).Elem()
		names[v.Type().Name()], listed[v.Type()] = true, true
		t.Run(v.Type().Name(), func(t *testing.T) { s.check(t, c, v) })
	}
	marked := Marked(t)
	for name := range marked {
		require.True(t, names[name], "%s travels between brokers and has no golden bytes", name)
	}
	for _, s := range list {
		typ := reflect.TypeOf(s.Value).Elem()
		require.True(t, typ.PkgPath() != own || marked[typ.Name()], "the comment of %s must say %q", typ.Name(), Mark)
		if s.Own == nil {
			nested(t, typ, listed)
		}
	}
}

func (s Struct) check(t *testing.T, c Codec, v reflect.Value) {
	if v.IsZero() {
		n := 0
		fill(v, &n)
	}
	if s.Own != nil {
		c = *s.Own
	}
	b, err := c.Marshal(s.Value)
	require.NoError(t, err)
	require.Equal(t, s.Golden, hex.EncodeToString(b), "the bytes of %s: brokers of two versions would misread each other", v.Type())
	if c.Unmarshal == nil {
		return
	}
	again := reflect.New(v.Type())
	require.NoError(t, c.Unmarshal(b, again.Interface()))
	require.Equal(t, s.Value, again.Interface())
}

// fill gives each exported field that the codec encodes a value of its own.
func fill(v reflect.Value, n *int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				fill(v.Field(i), n)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	default:
		*n++
		scalar(v, *n)
	}
}

func scalar(v reflect.Value, n int) {
	switch {
	case v.Kind() == reflect.String:
		v.SetString(fmt.Sprint("s", n))
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanFloat():
		v.SetFloat(float64(n))
	case v.CanInt():
		v.SetInt(int64(n))
	default:
		v.SetUint(uint64(n))
	}
}

// nested requires that the structs in a struct's fields have golden bytes too, but for ident.Partition. None has a []byte.
func nested(t *testing.T, typ reflect.Type, listed map[reflect.Type]bool) {
	t.Helper()
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice:
		require.NotEqual(t, reflect.TypeFor[[]byte](), typ, "the codec decodes long ones in quadratic time: rpc.Bytes")
		nested(t, typ.Elem(), listed)
	case reflect.Struct:
		if typ == reflect.TypeFor[ident.Partition]() {
			return
		}
		require.True(t, listed[typ], "%s travels between brokers and has no golden bytes", typ)
		for i := range typ.NumField() {
			if typ.Field(i).Tag.Get("json") != "-" {
				nested(t, typ.Field(i).Type, listed)
			}
		}
	}
}

// Marked lists the structs with the Mark of the package in the folder where the test runs.
func Marked(t *testing.T) map[string]bool {
	t.Helper()
	marked := map[string]bool{}
	for _, f := range Files(t) {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, s := range g.Specs {
				spec := s.(*ast.TypeSpec)
				if says(g.Doc) || says(spec.Doc) {
					marked[spec.Name.Name] = true
				}
			}
		}
	}
	require.NotEmpty(t, marked)
	return marked
}

func says(c *ast.CommentGroup) bool {
	return strings.Contains(strings.Join(strings.Fields(c.Text()), " "), Mark)
}

// Files parses the sources, without tests, of the folder where the test runs.
func Files(t *testing.T) (files []*ast.File) {
	t.Helper()
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}
	return files
}
