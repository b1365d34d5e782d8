package lint_test

import (
	"go/ast"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLogFieldsAreNamedOnce: each field of the log stands in the table of docs/operations/run.md, and the
// table has no others.
func TestLogFieldsAreNamedOnce(t *testing.T) {
	document, err := os.ReadFile("../../docs/operations/run.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(document), "| field | meaning |\n|---|---|\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	listed := map[string]bool{"error": true, "broker": true} // logrus, and the formatter, add them
	for line := range strings.Lines(table) {
		names, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(names, -1) {
			listed[m[1]] = true
		}
	}
	used := map[string]string{"error": "", "broker": ""}
	for _, s := range sources(t) {
		if s.test || strings.HasPrefix(s.path, "internal/test/verify/") || strings.HasPrefix(s.path, "internal/test/testkit/") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			for _, name := range logFields(n) {
				used[name] = s.at(n)
			}
			return true
		})
	}
	for name, at := range used {
		if !listed[name] {
			t.Errorf("%s: the field %q of the log is not in the table of docs/operations/run.md", at, name)
		}
	}
	for name := range listed {
		if _, ok := used[name]; !ok {
			t.Errorf("docs/operations/run.md: no line of the log has the field %q", name)
		}
	}
}

// logFields returns the literal names of the fields that an expression adds to a line: by
// WithField, in a logrus.Fields, in the map of a LogFields method, or by fields["x"] = ….
func logFields(n ast.Node) (names []string) {
	add := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok {
			if name, err := strconv.Unquote(lit.Value); err == nil {
				names = append(names, name)
			}
		}
	}
	keys := func(lit *ast.CompositeLit) {
		for _, e := range lit.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				add(kv.Key)
			}
		}
	}
	switch n := n.(type) {
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "WithField" && len(n.Args) == 2 {
			add(n.Args[0])
		}
	case *ast.CompositeLit:
		if f, ok := n.Type.(*ast.SelectorExpr); ok && f.Sel.Name == "Fields" {
			if x, ok := f.X.(*ast.Ident); ok && x.Name == "logrus" {
				keys(n)
			}
		}
	case *ast.IndexExpr:
		if x, ok := n.X.(*ast.Ident); ok && x.Name == "fields" {
			add(n.Index)
		}
	case *ast.FuncDecl:
		if n.Name.Name == "LogFields" {
			ast.Inspect(n.Body, func(m ast.Node) bool {
				if lit, ok := m.(*ast.CompositeLit); ok {
					keys(lit)
				}
				return true
			})
		}
	}
	return names
}
