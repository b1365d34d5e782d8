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
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is the import path of this repository.
const module = "github.com/lockstepmq/lockstep"

// source is one parsed file.
type source struct {
	path string // relative to the root of the repository, with slashes
	test bool
	fset *token.FileSet
	file *ast.File
}

// dir is the package's directory relative to the root; "." is the root.
func (s source) dir() string { return path.Dir(s.path) }

// at returns a position for a failure.
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

// sources returns every Go file of the module. Other modules in the repository have their own
// rules and dependencies.
func sources(t *testing.T) []source {
	t.Helper()
	out, err := parsed()
	require.NoError(t, err)
	require.NotEmpty(t, out)
	return out
}

// parsed reads the files once for all tests.
var parsed = sync.OnceValues(parse)

func parse() (out []source, err error) {
	const root = "../.."
	fset := token.NewFileSet()
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			hidden := strings.HasPrefix(d.Name(), ".") && name != root
			_, err := os.Stat(filepath.Join(name, "go.mod"))
			if hidden || err == nil && name != root || d.Name() == "testdata" || d.Name() == "bin" || d.Name() == "node_modules" {
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
	return out, err
}

// below reports whether dir is root or below it.
func below(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }
