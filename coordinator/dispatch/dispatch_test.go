package dispatch

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

// TestEveryMethodHasAHandler: the names in package calls are those of the table.
func TestEveryMethodHasAHandler(t *testing.T) {
	files, err := filepath.Glob("../../rpc/calls/*.go")
	require.NoError(t, err)
	var names []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		names = append(names, methods(t, f)...)
	}
	require.NotEmpty(t, names)
	require.ElementsMatch(t, names, slices.Collect(maps.Keys(newTable(Components{}).calls)))
}

// methods are the values of a file's constants of type Method.
func methods(t *testing.T, f *ast.File) (names []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		c, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		generic, ok := c.Type.(*ast.IndexListExpr)
		if !ok || generic.X.(*ast.Ident).Name != "Method" {
			return true
		}
		for _, v := range c.Values {
			name, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			require.NoError(t, err)
			names = append(names, name)
		}
		return true
	})
	return names
}

// TestFramesOfAllClassesHaveAHandler: but for those that calls and connections need.
func TestFramesOfAllClassesHaveAHandler(t *testing.T) {
	table := newTable(Components{})
	for _, class := range []rpc.Class{rpc.ClassReplica, rpc.ClassForward, rpc.ClassRelay, rpc.ClassBulk} {
		require.NotNil(t, table.frames[class], "class %d", class)
	}
}

// TestNothingComesInBeforeOpen: a call that is earlier waits for the components.
func TestNothingComesInBeforeOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, answered := New("n1"), make(chan error, 1)
		go func() {
			_, err := d.Serve(t.Context(), "n2", "nonsense", nil)
			answered <- err
		}()
		synctest.Wait()
		require.Empty(t, answered)
		d.Open(nil, Components{})
		require.ErrorIs(t, <-answered, rpc.ErrMethod)
	})
}

// TestCloseLetsGoOfThoseThatWait: a broker that fails to start never opens.
func TestCloseLetsGoOfThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, answered := New("n1"), make(chan error, 1)
		go func() {
			d.Frame("n2", 7, rpc.Received{Class: rpc.ClassReplica})
			d.Peer("n2", 7, true, false)
			_, err := d.Serve(t.Context(), "n2", string(calls.Ends), nil)
			answered <- err
		}()
		synctest.Wait()
		require.Empty(t, answered)
		d.Close()
		require.ErrorIs(t, <-answered, outcome.ErrExiting)
	})
}

// nowhere is a Transport that must not be used.
type nowhere struct{ t *testing.T }

func (n nowhere) Call(context.Context, ident.Node, string, any, any) error {
	n.t.Error("a call to this broker went to the network")
	return nil
}

// TestARequestThatIsNotOneIsRefused, with or without the network.
func TestARequestThatIsNotOneIsRefused(t *testing.T) {
	d := New("n1")
	d.Open(nowhere{t}, Components{})
	_, err := d.Serve(t.Context(), "n2", string(calls.Hide), []byte{0xc1})
	require.ErrorIs(t, err, outcome.ErrInvalid)
	err = d.Call(t.Context(), "n1", string(calls.Hide), "no struct", nil)
	require.ErrorIs(t, err, outcome.ErrInvalid)
}
