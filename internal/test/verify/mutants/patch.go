package mutants

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// filePatch is the part of a patch for one file.
type filePatch struct {
	path  string // from the root of the repository, with slashes
	hunks []hunk
}

// hunk replaces lines by others. Both begin and end with the same lines of context.
type hunk struct {
	line     int // of the file, from 1, where old began when the patch was made
	old, new []string
	text     []string // the lines of the patch
}

var hunkHeader = regexp.MustCompile(`^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@`)

// parseDiff reads a unified diff. Files that are made or removed are refused.
func parseDiff(text string) (files []filePatch, err error) {
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if err := parseLine(&files, line); err != nil {
			return nil, fmt.Errorf("line %d of the diff: %w", i+1, err)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no diff")
	}
	for _, f := range files {
		if len(f.hunks) == 0 {
			return nil, fmt.Errorf("%s: no change", f.path)
		}
	}
	return files, nil
}

func parseLine(files *[]filePatch, line string) error {
	if path, ok := strings.CutPrefix(line, "+++ "); ok {
		path, ok = strings.CutPrefix(path, "b/")
		if !ok {
			return fmt.Errorf("%s: a mutant changes files, it removes none", path)
		}
		*files = append(*files, filePatch{path: path})
		return nil
	}
	if strings.HasPrefix(line, "--- ") {
		if !strings.HasPrefix(line, "--- a/") {
			return fmt.Errorf("%s: a mutant changes files, it makes none", line)
		}
		return nil
	}
	if strings.HasPrefix(line, "diff ") || strings.HasPrefix(line, "index ") || len(*files) == 0 {
		return nil
	}
	f := &(*files)[len(*files)-1]
	if m := hunkHeader.FindStringSubmatch(line); m != nil {
		at, err := strconv.Atoi(m[1])
		f.hunks = append(f.hunks, hunk{line: at})
		return err
	}
	if len(f.hunks) == 0 {
		return fmt.Errorf("%q stands before the first hunk", line)
	}
	return f.hunks[len(f.hunks)-1].add(line)
}

func (h *hunk) add(line string) error {
	if line == "" {
		line = " " // editors remove the space of an empty line of context
	}
	h.text = append(h.text, line)
	switch text := line[1:]; line[0] {
	case ' ':
		h.old, h.new = append(h.old, text), append(h.new, text)
	case '-':
		h.old = append(h.old, text)
	case '+':
		h.new = append(h.new, text)
	case '\\': // no newline at the end of the file
	default:
		return fmt.Errorf("%q is no line of a hunk", line)
	}
	return nil
}

// apply changes a text. A hunk goes where it was made, or, if the file has changed since,
// to the one other place that has its old lines.
func (f filePatch) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	var out []string
	from, moved := 0, 0
	for _, h := range f.hunks {
		at, err := h.place(lines, from, h.line-1+moved)
		if err != nil {
			return "", fmt.Errorf("%s: the hunk at line %d: %w", f.path, h.line, err)
		}
		moved = at - (h.line - 1)
		out = append(append(out, lines[from:at]...), h.new...)
		from = at + len(h.old)
	}
	return strings.Join(append(out, lines[from:]...), "\n"), nil
}

// place finds the line, from 0, at which the hunk belongs.
func (h hunk) place(lines []string, from, expected int) (int, error) {
	fits := func(at int) bool {
		return at >= from && at+len(h.old) <= len(lines) && slices.Equal(lines[at:at+len(h.old)], h.old)
	}
	if fits(expected) {
		return expected, nil
	}
	var found []int
	for at := from; at+len(h.old) <= len(lines); at++ {
		if fits(at) {
			found = append(found, at)
		}
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("its lines are not in the file")
	case 1:
		return found[0], nil
	}
	return 0, fmt.Errorf("its lines are in the file %d times", len(found))
}
