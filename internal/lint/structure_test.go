package lint_test

import (
	"cmp"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// size is the size of a package without its tests.
type size struct{ files, lines, exported int }

// TestSizesOfPackages prints the files, lines and exported names of each package with -v.
func TestSizesOfPackages(t *testing.T) {
	sizes := map[string]size{}
	for _, s := range sources(t) {
		if s.test || below(s.dir(), "internal/test/verify") || below(s.dir(), "internal/test/testkit") || below(s.dir(), "docs") || below(s.dir(), "packaging") {
			continue
		}
		x := sizes[s.dir()]
		x.files++
		x.lines += s.fset.File(s.file.Pos()).LineCount()
		x.exported += exportedNames(s.file)
		sizes[s.dir()] = x
	}
	all := slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b].lines, sizes[a].lines), strings.Compare(a, b))
	})
	for _, dir := range all {
		x := sizes[dir]
		t.Logf("| `%s` | %d | %d | %d |", dir, x.files, x.lines, x.exported)
	}
}

// exportedNames counts the exported names of a file, and the exported methods of exported types.
func exportedNames(f *ast.File) (n int) {
	count := func(name *ast.Ident) {
		if name.IsExported() {
			n++
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if exportedReceiver(d) {
				count(d.Name)
			}
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				continue
			}
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					count(spec.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						count(name)
					}
				}
			}
		}
	}
	return n
}
