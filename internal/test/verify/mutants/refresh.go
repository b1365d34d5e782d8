package mutants

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Refresh follows code that has moved: a hunk that does not apply any more goes to the
// one other place in the sources that has its old lines, in any file. It returns the
// names of the patches that it has rewritten. A hunk whose lines have changed is an
// error; the patch stays as it is.
func Refresh(root string, mutants []Mutant) (names []string, err error) {
	var wrong []error
	sources := map[string][]string{}
	for i := range mutants {
		m := &mutants[i]
		if _, err := m.sources(root); err == nil {
			continue
		}
		if len(sources) == 0 {
			if err := readSources(root, sources); err != nil {
				return nil, err
			}
		}
		if err := m.follow(root, sources); err != nil {
			wrong = append(wrong, fmt.Errorf("mutants: %s: %w", m.Name, err))
			continue
		}
		names = append(names, m.Name)
	}
	return names, errors.Join(wrong...)
}

// readSources reads the lines of all Go files but tests, by their paths from the root.
func readSources(root string, sources map[string][]string) error {
	return filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(name, ".") && file != root:
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		path, err := filepath.Rel(root, file)
		sources[filepath.ToSlash(path)] = strings.Split(string(text), "\n")
		return err
	})
}

// follow finds the place of every hunk and rewrites the patch.
func (m *Mutant) follow(root string, sources map[string][]string) error {
	moved := map[string][]hunk{}
	for _, f := range m.files {
		for _, h := range f.hunks {
			path, line, err := h.find(f.path, sources)
			if err != nil {
				return fmt.Errorf("the hunk at line %d of %s: %w", h.line, f.path, err)
			}
			h.line = line + 1
			moved[path] = append(moved[path], h)
		}
	}
	file := filepath.Join(root, filepath.FromSlash(Folder), m.Name+".patch")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "# ") {
			break
		}
		b.WriteString(line)
	}
	for _, path := range slices.Sorted(maps.Keys(moved)) {
		fmt.Fprintf(&b, "diff --git a/%s b/%s\n--- a/%s\n+++ b/%s\n", path, path, path, path)
		hunks := moved[path]
		slices.SortFunc(hunks, func(a, b hunk) int { return cmp.Compare(a.line, b.line) })
		grown := 0
		for _, h := range hunks {
			fmt.Fprintf(&b, "@@ -%d,%d +%d,%d @@\n%s\n", h.line, len(h.old), h.line+grown, len(h.new), strings.Join(h.text, "\n"))
			grown += len(h.new) - len(h.old)
		}
	}
	return write(file, []byte(b.String()))
}

// find looks for the old lines in the file that they were in, then in all others.
func (h hunk) find(path string, sources map[string][]string) (string, int, error) {
	if at, err := h.place(sources[path], 0, h.line-1); err == nil {
		return path, at, nil
	}
	var places []string
	line := 0
	for other, lines := range sources {
		if at, err := h.place(lines, 0, -1); err == nil {
			places, line = append(places, other), at
		}
	}
	switch len(places) {
	case 0:
		return "", 0, errors.New("its lines are in no file: they have changed")
	case 1:
		return places[0], line, nil
	}
	return "", 0, fmt.Errorf("its lines are in several files: %s", strings.Join(places, ", "))
}
