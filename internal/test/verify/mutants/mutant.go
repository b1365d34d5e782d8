package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Folder is where the patches are, from the root of the repository.
const Folder = "internal/test/verify/mutants/patches"

// Mutant is one removed rule.
type Mutant struct {
	Name       string // of its file, without .patch
	Rule       string // which rule it breaks: one sentence
	Witnesses  []Witness
	Equivalent string // why its removal breaks no promise; "": it breaks one
	files      []filePatch
}

// Kind says how a witness is run and judged.
type Kind string

// The kinds of witnesses. KindTest is a plain test of a package.
const (
	KindModel   Kind = "model"
	KindSim     Kind = "sim"
	KindScript  Kind = "script"
	KindTest    Kind = "test"
	KindProcess Kind = "process"
)

// Witness is a test that must fail with the mutant and pass without it.
type Witness struct {
	Kind    Kind
	Package string // from the root of the repository
	Test    string // the name of the test, or Test/subtest
}

// named are the witnesses that have a word of their own.
var named = map[Kind]Witness{
	KindModel:  {KindModel, "internal/test/verify/model", "TestMutant"},
	KindSim:    {KindSim, "internal/test/verify/sim", "TestMutant"},
	KindScript: {KindScript, "coordinator/replica", "TestScripts"},
}

// String is the witness as a patch names it.
func (w Witness) String() string {
	switch w.Kind {
	case KindTest:
		return w.Package + " " + w.Test
	case KindProcess:
		return "process " + w.Package + " " + w.Test
	}
	return string(w.Kind)
}

// Matches reports whether a word of the command line means this witness: its kind, its
// package or its test.
func (w Witness) Matches(word string) bool {
	return word == string(w.Kind) || word == w.Package || word == w.Test
}

// Load reads all mutants, sorted by name, or those that are named.
func Load(root string, names ...string) ([]Mutant, error) {
	all, err := filepath.Glob(filepath.Join(root, Folder, "*.patch"))
	if err != nil || len(all) == 0 {
		return nil, fmt.Errorf("mutants: no patch in %s (%v)", filepath.Join(root, Folder), err)
	}
	var mutants []Mutant
	for _, file := range all { // Glob sorts
		name := strings.TrimSuffix(filepath.Base(file), ".patch")
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("mutants: %w", err)
		}
		m, err := parse(name, string(text))
		if err != nil {
			return nil, fmt.Errorf("mutants: %s: %w", name, err)
		}
		mutants = append(mutants, m)
	}
	for _, name := range names {
		if !slices.ContainsFunc(mutants, func(m Mutant) bool { return m.Name == name }) {
			return nil, fmt.Errorf("mutants: there is no %s/%s.patch", Folder, name)
		}
	}
	return mutants, nil
}

// parse reads a patch with its first lines.
func parse(name, text string) (Mutant, error) {
	m := Mutant{Name: name}
	var wrong []error
	for line := range strings.Lines(text) {
		line, comment := strings.CutPrefix(strings.TrimRight(line, "\n"), "# ")
		if !comment {
			break
		}
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "rule":
			m.Rule = value
		case "equivalent":
			m.Equivalent = value
		case "witnesses":
			for _, word := range strings.Split(value, ", ") {
				w, err := parseWitness(word)
				m.Witnesses, wrong = append(m.Witnesses, w), append(wrong, err)
			}
		default:
			wrong = append(wrong, fmt.Errorf("%q is none of rule, witnesses, equivalent", key))
		}
	}
	if m.Rule == "" || len(m.Witnesses) == 0 {
		wrong = append(wrong, errors.New("a patch begins with `# rule: …` and `# witnesses: …`"))
	}
	var err error
	m.files, err = parseDiff(text)
	return m, errors.Join(append(wrong, err)...)
}

var witnessForm = regexp.MustCompile(`^(process )?([a-z0-9/]+) (Test\w+(?:/\S+)?)$`)

func parseWitness(word string) (Witness, error) {
	if w, ok := named[Kind(word)]; ok {
		return w, nil
	}
	parts := witnessForm.FindStringSubmatch(word)
	if parts == nil {
		return Witness{}, fmt.Errorf("%q is no witness: model, sim, script, PACKAGE Test or process PACKAGE Test", word)
	}
	w := Witness{Kind: KindTest, Package: parts[2], Test: parts[3]}
	if parts[1] != "" {
		w.Kind = KindProcess
	}
	return w, nil
}

// Protocol reports whether the mutant breaks the replication protocol itself.
func (m *Mutant) Protocol() bool {
	return slices.ContainsFunc(m.files, func(f filePatch) bool { return path.Dir(f.path) == "coordinator/replica" })
}

// sources gives the changed text of every file that the mutant changes, by its path.
func (m *Mutant) sources(root string) (map[string]string, error) {
	changed := map[string]string{}
	for _, f := range m.files {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f.path)))
		if err != nil {
			return nil, fmt.Errorf("mutants: %s: %w", m.Name, err)
		}
		if changed[f.path], err = f.apply(string(text)); err != nil {
			return nil, fmt.Errorf("mutants: %s: %w", m.Name, err)
		}
	}
	return changed, nil
}

// Overlay writes the changed files into a directory, and the file for the flag -overlay
// of the go command, whose path it returns. The sources stay as they are.
func (m *Mutant) Overlay(root, dir string) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", fmt.Errorf("mutants: %w", err)
	}
	changed, err := m.sources(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range changed {
		copied := filepath.Join(dir, m.Name, filepath.FromSlash(name))
		if err := write(copied, []byte(text)); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(name))] = copied
	}
	list, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("mutants: %w", err)
	}
	overlay := filepath.Join(dir, m.Name, "overlay.json")
	return overlay, write(overlay, list)
}

func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("mutants: %w", err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("mutants: %w", err)
	}
	return nil
}
