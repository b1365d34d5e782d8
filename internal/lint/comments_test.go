package lint_test

import (
	"go/ast"
	"strings"
	"testing"
)

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	comments := map[string]int{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		comments[s.dir()] += 0
		doc := s.file.Doc.Text()
		if doc == "" {
			continue
		}
		comments[s.dir()]++
		name := s.file.Name.Name
		if name != "main" && !strings.HasPrefix(doc, "Package "+name+" ") {
			t.Errorf("%s: the package comment begins with %q", s.path, "Package "+name)
		}
	}
	for dir, n := range comments {
		if n != 1 {
			t.Errorf("%s: %d package comments, want exactly one (what it does, what it does not, its invariants)", dir, n)
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.file.Name.Name == "main" {
			continue
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
					t.Errorf("%s: %s has no comment", s.at(d), d.Name.Name)
				}
			case *ast.GenDecl:
				checkDeclaration(t, s, d)
			}
		}
	}
}

// checkDeclaration requires a comment at each exported type, and at each exported constant and
// variable or at its block.
func checkDeclaration(t *testing.T, s source, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
				t.Errorf("%s: type %s has no comment", s.at(spec), spec.Name.Name)
			}
		case *ast.ValueSpec:
			if spec.Names[0].IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
				t.Errorf("%s: %s has no comment", s.at(spec), spec.Names[0].Name)
			}
		}
	}
}

// exportedReceiver reports whether a declaration is a function, or a method of an exported
// type.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}
