package mutants

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Check verifies that every patch applies, that its result compiles, and that its rule
// and its witnesses exist. It compiles nothing: the type checker of the compiler reads
// each changed package, with the export data that the go command keeps of the others. So
// all mutants together take seconds, where a build of each would take a minute.
func Check(root string, mutants []Mutant) error {
	c := checker{root: root, set: token.NewFileSet(), parsed: map[string]*ast.File{}}
	if err := c.list(mutants); err != nil {
		return err
	}
	var wrong []error
	for i := range mutants {
		m := &mutants[i]
		for _, err := range []error{c.compiles(m), c.ruleExists(m), c.witnessesExist(m)} {
			if err != nil {
				wrong = append(wrong, fmt.Errorf("%s: %w", m.Name, err))
			}
		}
	}
	return errors.Join(wrong...)
}

type checker struct {
	root     string
	set      *token.FileSet
	packages map[string]listed    // by folder, from the root
	exports  map[string]string    // by import path: the file with the export data
	parsed   map[string]*ast.File // unchanged files, by their paths
	importer types.Importer
	rules    []byte // coordinator/replica/DESIGN.md
}

// listed is the output of `go list` for a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// list asks the go command for the changed packages and everything they import.
func (c *checker) list(mutants []Mutant) error {
	args := map[string]bool{}
	for _, m := range mutants {
		for _, f := range m.files {
			if strings.HasSuffix(f.path, "_test.go") || path.Ext(f.path) != ".go" {
				return fmt.Errorf("%s: %s: a mutant changes the code, not its tests", m.Name, f.path)
			}
			args["./"+path.Dir(f.path)] = true
		}
	}
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}, slices.Sorted(maps.Keys(args))...)...)
	cmd.Dir = c.root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("mutants: go list: %w\n%s", err, stderr.String())
	}
	root, err := filepath.Abs(c.root)
	if err != nil {
		return fmt.Errorf("mutants: %w", err)
	}
	c.packages, c.exports = map[string]listed{}, map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("mutants: go list: %w", err)
		}
		c.exports[p.ImportPath] = p.Export
		if folder, err := filepath.Rel(root, p.Dir); err == nil {
			c.packages[filepath.ToSlash(folder)] = p
		}
	}
	c.importer = importer.ForCompiler(c.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(c.exports[path]) })
	c.rules, err = os.ReadFile(filepath.Join(c.root, named[KindScript].Package, "DESIGN.md"))
	return err
}

// compiles applies a patch and checks the types of the packages that it changes.
func (c *checker) compiles(m *Mutant) error {
	changed, err := m.sources(c.root)
	if err != nil {
		return err
	}
	folders := map[string]bool{}
	for name := range changed {
		folders[path.Dir(name)] = true
	}
	for folder := range folders {
		p := c.packages[folder]
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := c.parse(path.Join(folder, name), changed)
			if err != nil {
				return err
			}
			files = append(files, f)
		}
		if _, err := (&types.Config{Importer: c.importer}).Check(p.ImportPath, c.set, files, nil); err != nil {
			return fmt.Errorf("does not compile: %w", err)
		}
	}
	return nil
}

func (c *checker) parse(name string, changed map[string]string) (*ast.File, error) {
	if text, ok := changed[name]; ok {
		return parser.ParseFile(c.set, name, text, parser.SkipObjectResolution)
	}
	if f := c.parsed[name]; f != nil {
		return f, nil
	}
	f, err := parser.ParseFile(c.set, filepath.Join(c.root, filepath.FromSlash(name)), nil, parser.SkipObjectResolution)
	c.parsed[name] = f
	return f, err
}

var ruleNumber = regexp.MustCompile(`\b(ID|AC|DW|FO|RB|EL|CU|CH)-\d+\b`)

// ruleExists: a mutant of the protocol names a rule of coordinator/replica/DESIGN.md.
func (c *checker) ruleExists(m *Mutant) error {
	numbers := ruleNumber.FindAllString(m.Rule, -1)
	if m.Protocol() && len(numbers) == 0 {
		return fmt.Errorf("names no rule of %s/DESIGN.md", named[KindScript].Package)
	}
	for _, n := range numbers {
		if !bytes.Contains(c.rules, []byte("**"+n+"**")) {
			return fmt.Errorf("%s is no rule of %s/DESIGN.md", n, named[KindScript].Package)
		}
	}
	return nil
}

// witnessesExist: the tests that a patch names are declared in their packages.
func (c *checker) witnessesExist(m *Mutant) error {
	for _, w := range m.Witnesses {
		name, _, _ := strings.Cut(w.Test, "/")
		files, err := filepath.Glob(filepath.Join(c.root, filepath.FromSlash(w.Package), "*_test.go"))
		if err != nil {
			return err
		}
		declared := slices.ContainsFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && bytes.Contains(text, []byte("\nfunc "+name+"("))
		})
		if !declared {
			return fmt.Errorf("there is no %s in %s", name, w.Package)
		}
	}
	return nil
}
