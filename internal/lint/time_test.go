package lint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hangLimit is the least time after which a test of the gate may call something hung.
const hangLimit = 30 * time.Second

// TestNoWallClockInTheGate: no test that `make test` runs depends on how fast the machine is.
// Such a test waits for a condition with internal/test/testkit/wait, judges durations in a bubble of
// testing/synctest, or is named TestPromise… in a file …promises_test.go, which `make promises` runs.
// An order of goroutines, or a port that another process takes, cannot be found here and stays
// with the reader.
func TestNoWallClockInTheGate(t *testing.T) {
	outside := outsideTheGate(t)
	for _, p := range gateTests(t, outside) {
		p.check(t)
	}
}

// TestTheWallClockIsFound keeps the rule above able to see.
func TestTheWallClockIsFound(t *testing.T) {
	const text = `package x
import ("context"; "net/http"; "testing"; "testing/synctest"; "time"; "github.com/stretchr/testify/require"
"github.com/lockstepmq/lockstep/internal/test/testkit/env")
const patience = 20 * time.Second
const patient = time.Minute
func helper(t *testing.T) { time.Sleep(patient) } // files with bubbles: their helpers are trusted
func TestReal(t *testing.T) {
	time.Sleep(1) // BAD
	require.Eventually(t, nil, patience, 1) // BAD
	require.Neverf(t, nil, patience, 1, "") // BAD
	require.Less(t, time.Since(began), patience) // BAD
	took := time.Now().Sub(began) // BAD
	<-time.After(patience) // BAD
	<-time.After(patient)
	context.WithTimeout(t.Context(), 29*time.Second) // BAD
	context.WithTimeout(t.Context(), 30*time.Second)
	conn.SetReadDeadline(time.Now().Add(patience)) // BAD
	conn.SetDeadline(time.Now().Add(patient))
	_ = http.Client{Timeout: 3 * time.Second} // BAD
	env.Within(t, patience) // BAD
}
func TestVirtual(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1); require.Less(t, time.Since(began), patience) }) }
func bubble(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) }
func TestVirtualByAHelper(t *testing.T) { bubble(t, func(*testing.T) { time.Sleep(1) }) }
func BenchmarkReal(b *testing.B) { _ = time.Since(began) }
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "x_test.go", text, 0)
	require.NoError(t, err)
	var want, got []int
	for i, line := range strings.Split(text, "\n") {
		if strings.Contains(line, "// BAD") {
			want = append(want, i+1)
		}
	}
	p := testPackage{files: []source{{path: "x/x_test.go", test: true, fset: fset, file: file}}}
	p.find(func(s source, n ast.Node, _ string) { got = append(got, fset.Position(n.Pos()).Line) })
	require.Equal(t, want, got)

	file, err = parser.ParseFile(fset, "x_promises_test.go", "package x\nfunc TestPromiseFast(t *testing.T) { time.Sleep(1) }\nfunc TestOther(t *testing.T) {}\n", 0)
	require.NoError(t, err)
	var names []string
	p = testPackage{files: []source{{path: "x/x_promises_test.go", test: true, fset: fset, file: file}}}
	p.find(func(_ source, _ ast.Node, why string) { names = append(names, why) })
	require.Len(t, names, 1)
	require.Contains(t, names[0], "TestOther")
}

// outsideTheGate reads from the Makefile which folders have no test of the gate.
func outsideTheGate(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^OUTSIDE = (.+)$`).FindSubmatch(text)
	require.NotNil(t, line, "the Makefile says which packages are outside the gate")
	return strings.Fields(string(line[1]))
}

// gateTests returns the tests and test kits of the gate, by package.
func gateTests(t *testing.T, outside []string) map[string]*testPackage {
	t.Helper()
	all := append(sources(t), sourcesBelow(t, "client")...)
	found := map[string]*testPackage{}
	for _, s := range all {
		if !s.test && !below(s.dir(), "internal/test/testkit") || s.dir() == "internal/test/testkit/wait" {
			continue
		}
		out := false
		for _, o := range outside {
			out = out || below(s.dir(), o)
		}
		if out {
			continue
		}
		key := s.dir() + " " + s.file.Name.Name
		if found[key] == nil {
			found[key] = &testPackage{}
		}
		found[key].files = append(found[key].files, s)
	}
	require.Greater(t, len(found), 50)
	return found
}

// testPackage is the test files of one package.
type testPackage struct {
	files  []source
	consts map[string]ast.Expr
}

func (p *testPackage) check(t *testing.T) {
	t.Helper()
	p.find(func(s source, n ast.Node, why string) { t.Errorf("%s: %s", s.at(n), why) })
}

// find reports what depends on the wall clock.
func (p *testPackage) find(report func(source, ast.Node, string)) {
	p.consts = map[string]ast.Expr{}
	bubbles := map[string]bool{} // functions that open a bubble
	p.functions(func(_ source, f *ast.FuncDecl) {
		bubbles[f.Name.Name] = bubbles[f.Name.Name] || holds(f, func(n ast.Node) bool { return isCall(n, "synctest", "Test") })
	})
	for _, s := range p.files {
		for _, d := range s.file.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				p.readConsts(g)
			}
		}
	}
	p.functions(func(s source, f *ast.FuncDecl) {
		name, isTest := f.Name.Name, strings.HasPrefix(f.Name.Name, "Test") && f.Recv == nil
		inPromises := strings.HasSuffix(s.path, "promises_test.go")
		if isTest && name != "TestMain" && inPromises != strings.HasPrefix(name, "TestPromise") {
			report(s, f, name+": tests named TestPromise… stand in files …promises_test.go, and no others")
		}
		_, fileHasBubbles := s.imports()["testing/synctest"]
		virtual := fileHasBubbles && (!isTest || holds(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return false
			}
			switch fun := call.Fun.(type) {
			case *ast.Ident:
				return bubbles[fun.Name]
			case *ast.SelectorExpr:
				return bubbles[fun.Sel.Name] || isCall(n, "synctest", "Test")
			}
			return false
		}))
		if inPromises || virtual || strings.HasPrefix(name, "Benchmark") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if why := p.clock(n); why != "" {
				report(s, n, why)
				return false
			}
			return true
		})
	})
}

func (p *testPackage) functions(each func(source, *ast.FuncDecl)) {
	for _, s := range p.files {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				each(s, f)
			}
		}
	}
}

func (p *testPackage) readConsts(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		v := spec.(*ast.ValueSpec)
		for i, name := range v.Names {
			if i < len(v.Values) {
				p.consts[name.Name] = v.Values[i]
			}
		}
	}
}

// clock says why a node depends on the wall clock, "" if it does not.
func (p *testPackage) clock(n ast.Node) string {
	const instead = "; use internal/test/testkit/wait, a bubble of testing/synctest, or a TestPromise…"
	if lit, ok := n.(*ast.CompositeLit); ok {
		return p.clientTimeout(lit, instead)
	}
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return ""
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	switch name := strings.TrimSuffix(sel.Sel.Name, "f"); name {
	case "Eventually", "EventuallyWithT", "Never", "WithinDuration", "WithinRange":
		return name + " has a limit of its own" + instead
	case "SetDeadline", "SetReadDeadline", "SetWriteDeadline":
		if len(call.Args) == 1 {
			return p.soon(call.Args[0], instead)
		}
	}
	for _, f := range []string{"Sleep", "Since"} {
		if isCall(n, "time", f) {
			return "time." + f + instead
		}
	}
	if isCall(n, "env", "Within") {
		return "a promise of time" + instead
	}
	if sel.Sel.Name == "Sub" && isCall(sel.X, "time", "Now") {
		return "a duration that was measured" + instead
	}
	for _, f := range []string{"After", "NewTimer", "AfterFunc"} {
		if isCall(n, "time", f) {
			return p.short(call.Args[0], "time."+f, instead)
		}
	}
	if (isCall(n, "context", "WithTimeout") || isCall(n, "context", "WithTimeoutCause")) && len(call.Args) >= 2 {
		return p.short(call.Args[1], "context.WithTimeout", instead)
	}
	if isCall(n, "context", "WithDeadline") && len(call.Args) >= 2 {
		return p.soon(call.Args[1], instead)
	}
	return ""
}

// soon judges time.Now().Add(d).
func (p *testPackage) soon(n ast.Expr, instead string) string {
	add, ok := n.(*ast.CallExpr)
	if !ok || len(add.Args) != 1 {
		return ""
	}
	if sel, ok := add.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Add" && isCall(sel.X, "time", "Now") {
		return p.short(add.Args[0], "a deadline", instead)
	}
	return ""
}

// short judges a limit. A value that only a run knows counts as long enough.
func (p *testPackage) short(n ast.Expr, what, instead string) string {
	if d, ok := p.duration(n); ok && d < hangLimit {
		return what + " of " + d.String() + ", below the hang limit of " + hangLimit.String() + instead
	}
	return ""
}

func (p *testPackage) clientTimeout(lit *ast.CompositeLit, instead string) string {
	if typ, ok := lit.Type.(*ast.SelectorExpr); !ok || typ.Sel.Name != "Client" && typ.Sel.Name != "Dialer" {
		return ""
	}
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Timeout" {
			return p.short(kv.Value, "a timeout", instead)
		}
	}
	return ""
}

var units = map[string]time.Duration{
	"Nanosecond": 1, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond,
	"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
}

// duration computes a constant expression.
func (p *testPackage) duration(n ast.Expr) (time.Duration, bool) {
	switch n := n.(type) {
	case *ast.ParenExpr:
		return p.duration(n.X)
	case *ast.BasicLit:
		i, err := strconv.ParseInt(n.Value, 0, 64)
		return time.Duration(i), n.Kind == token.INT && err == nil
	case *ast.SelectorExpr:
		d, ok := units[n.Sel.Name]
		return d, ok
	case *ast.Ident:
		value, ok := p.consts[n.Name]
		if !ok {
			return 0, false
		}
		return p.duration(value)
	case *ast.BinaryExpr:
		x, okX := p.duration(n.X)
		y, okY := p.duration(n.Y)
		switch {
		case !okX || !okY:
			return 0, false
		case n.Op == token.MUL:
			return x * y, true
		case n.Op == token.QUO && y != 0:
			return x / y, true
		case n.Op == token.ADD:
			return x + y, true
		}
	}
	return 0, false
}

// holds reports whether a node below n, or n itself, is what is sought.
func holds(n ast.Node, sought func(ast.Node) bool) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		found = found || n != nil && sought(n)
		return !found
	})
	return found
}

// sourcesBelow parses another module of the repository.
func sourcesBelow(t *testing.T, dir string) (out []source) {
	t.Helper()
	files, err := os.ReadDir(path.Join("../..", dir))
	require.NoError(t, err)
	fset := token.NewFileSet()
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") {
			continue
		}
		file, err := parser.ParseFile(fset, path.Join("../..", dir, f.Name()), nil, parser.ParseComments)
		require.NoError(t, err)
		out = append(out, source{path: path.Join(dir, f.Name()), test: strings.HasSuffix(f.Name(), "_test.go"), fset: fset, file: file})
	}
	return out
}
