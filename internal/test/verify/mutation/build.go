package mutation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The environment of a test binary: the mutant that is on, and the file for the sites that a test reaches.
const (
	envMutant = "LOCKSTEP_MUTATION"
	envTrace  = "LOCKSTEP_MUTATION_TRACE"
)

// switches is the file that each changed package gets. It is a copy in each of them, because no package may import another for it.
const switches = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutantOn      = func() int { n, _ := strconv.Atoi(os.Getenv("` + envMutant + `")); return n }()
	mutantTrace   = os.Getenv("` + envTrace + `")
	mutantReached [%d]atomic.Bool
)

func mutated(n int) bool {
	if mutantTrace != "" && !mutantReached[n].Swap(true) {
		if f, err := os.OpenFile(mutantTrace, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			f.WriteString(strconv.Itoa(n) + "\n")
			f.Close()
		}
	}
	return n == mutantOn
}
`

// overlay writes the sources with all mutants, and the file for go test -overlay. Mutant n is sites[n-1].
func overlay(root, dir string, sites []Site, without map[int]bool) (file string, err error) {
	type numbered struct {
		edit
		n int
	}
	byFile, packages := map[string][]numbered{}, map[string]bool{}
	for i, s := range sites {
		if without[i+1] {
			continue
		}
		for _, e := range s.edits {
			byFile[s.File] = append(byFile[s.File], numbered{e, i + 1})
		}
		packages[s.Package] = true
	}
	replace := map[string]string{}
	for name, edits := range byFile {
		source, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return "", err
		}
		slices.SortStableFunc(edits, func(a, b numbered) int { return cmp.Compare(a.from, b.from) })
		var out bytes.Buffer
		at := 0
		for _, e := range edits {
			out.Write(source[at:e.from])
			out.WriteString(strings.ReplaceAll(e.text, guard, fmt.Sprintf("mutated(%d)", e.n)))
			at = e.to
		}
		out.Write(source[at:])
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "__"))
		if err := os.WriteFile(to, out.Bytes(), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, name)] = to
	}
	for p := range packages {
		name, err := packageName(filepath.Join(root, p))
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, strings.ReplaceAll(p, "/", "__")+"__switches.go")
		if err := os.WriteFile(to, fmt.Appendf(nil, switches, name, len(sites)+1), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, p, "zz_mutated.go")] = to
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o600)
}

var packageClause = regexp.MustCompile(`(?m)^package (\w+)`)

func packageName(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		source, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		if m := packageClause.FindSubmatch(source); m != nil {
			return string(m[1]), nil
		}
	}
	return "", fmt.Errorf("mutation: %s has no Go files", dir)
}

var mutantIn = regexp.MustCompile(`mutated\((\d+)\)`)

// compile builds the changed packages. A mutant that does not compile, because a variable is unused or a type has another name, is
// left out; its number is in the result.
func compile(ctx context.Context, root, dir string, sites []Site) (file string, without map[int]bool, err error) {
	without = map[int]bool{}
	packages := map[string]bool{}
	for _, s := range sites {
		packages["./"+s.Package] = true
	}
	for range 20 {
		if file, err = overlay(root, dir, sites, without); err != nil {
			return "", nil, err
		}
		args := []string{"build", "-gcflags=-e", "-overlay", file}
		for p := range packages {
			args = append(args, p)
		}
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err == nil {
			return file, without, nil
		}
		before := len(without)
		blame(dir, string(out), without)
		if len(without) == before {
			return "", nil, fmt.Errorf("mutation: the mutants do not compile: %w\n%s", err, out)
		}
	}
	return "", nil, fmt.Errorf("mutation: the mutants still do not compile")
}

var compileError = regexp.MustCompile(`(?m)^([^\s:]+\.go):(\d+):`)

// blame notes the mutants in lines that do not compile.
func blame(dir, output string, without map[int]bool) {
	for _, m := range compileError.FindAllStringSubmatch(output, -1) {
		source, err := os.ReadFile(filepath.Join(dir, filepath.Base(m[1])))
		if err != nil {
			continue // not a changed file
		}
		lines := strings.Split(string(source), "\n")
		n, _ := strconv.Atoi(m[2])
		// An unused variable is named where it is declared: then the nearest mutant below is the cause.
		for i := n - 1; i < min(n+40, len(lines)); i++ {
			found := mutantIn.FindAllStringSubmatch(lines[i], -1)
			for _, f := range found {
				id, _ := strconv.Atoi(f[1])
				without[id] = true
			}
			if len(found) > 0 {
				break
			}
		}
	}
}
