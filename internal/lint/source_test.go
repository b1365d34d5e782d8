package lint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is the import path of this repository.
const module = "github.com/lockstepmq/lockstep"

// source is one parsed file.
type source struct {
	path string // from the root of the repository, with slashes
	test bool
	fset *token.FileSet
	file *ast.File
}

// dir is the package's folder from the root; "." is the root.
func (s source) dir() string { return path.Dir(s.path) }

// at names a place for a failure.
func (s source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

// imports lists the import paths.
func (s source) imports() map[string]*ast.ImportSpec {
	out := map[string]*ast.ImportSpec{}
	for _, spec := range s.file.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			out[p] = spec
		}
	}
	return out
}

// sources parses every Go file of the module; other modules in the repository
// have rules, and dependencies, of their own.
func sources(t *testing.T) []source {
	t.Helper()
	const root = "../.."
	var out []source
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			hidden := strings.HasPrefix(d.Name(), ".") && name != root
			_, err := os.Stat(filepath.Join(name, "go.mod"))
			if hidden || err == nil && name != root || d.Name() == "testdata" || d.Name() == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		out = append(out, source{path: filepath.ToSlash(rel), test: strings.HasSuffix(name, "_test.go"), fset: fset, file: file})
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, out)
	return out
}

// below says whether dir is root or lies in it.
func below(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }
