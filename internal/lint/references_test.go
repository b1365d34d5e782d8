package lint_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The forms of the citations in comments and documents.
var (
	citedRule    = regexp.MustCompile(`\b(?:RB|ID|AC|DW|FO|CH|EL|CU)-\d+\b`)
	citedTime    = regexp.MustCompile(`\bT_[a-z]+\b`)
	citedPromise = regexp.MustCompile(`\bP(\d{1,2})\b`)
	citedADR     = regexp.MustCompile(`\bADR[ \n](\d+)\b|\badr/(\d{4})`)
	citedSection = regexp.MustCompile(`DESIGN\.md,? (\d+(?:\.\d+)?)`)
	citedFile    = regexp.MustCompile(`[\w.*-]*(?:/[\w.*-]+)*\.(?:go|md|txt|patch)\b`)
	citedFolder  = regexp.MustCompile("`((?:bench|cmd|commitlog|coordinator|docs|internal|nsqctl|nsqd|packaging|rpc)(?:/[\\w.*-]+)+)/?`")
	link         = regexp.MustCompile(`\]\(([^)#\s]*)(#[\w-]*)?\)`)
	bareDesign   = regexp.MustCompile(`\bDESIGN\b(?:[^.]|$)|\bROLLBACK\b`)
)

const (
	rulesPage = "coordinator/replica/DESIGN.md"
	readme    = "README.md"
)

// repository holds everything that a text may cite.
type repository struct {
	files   map[string]bool // and folders
	rules   string
	readme  string
	decided []string // numbers of the ADRs, four digits
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	r := &repository{files: map[string]bool{}, rules: documentOf(t, rulesPage).text, readme: documentOf(t, readme).text}
	for _, name := range repositoryFiles(t) {
		if number, ok := strings.CutPrefix(name, "docs/adr/"); ok {
			r.decided = append(r.decided, number[:4])
		}
		for ; name != "."; name = path.Dir(name) {
			r.files[name] = true
		}
	}
	require.NotEmpty(t, r.decided)
	return r
}

// has reports whether a file or folder is there: by its path, from the folder of the text
// that cites it, or by the end of its path.
func (r *repository) has(name, from string) bool {
	if strings.Contains(name, "*") {
		return r.matches(name, from)
	}
	if r.files[path.Clean(name)] || r.files[path.Join(from, name)] {
		return true
	}
	if name == path.Base(rulesPage) {
		return false // with its folder, or a reader looks for it next to the text
	}
	for f := range r.files {
		if strings.HasSuffix(f, "/"+name) {
			return true
		}
	}
	return false
}

func (r *repository) matches(pattern, from string) bool {
	for f := range r.files {
		for _, p := range []string{pattern, path.Join(from, pattern), "*/" + pattern} {
			if ok, err := path.Match(p, f); ok && err == nil {
				return true
			}
		}
	}
	return false
}

// faults lists the citations of a text that lead nowhere. from is the folder that it is in.
func (r *repository) faults(text, from string) (faults []string) {
	for _, n := range citedRule.FindAllString(text, -1) {
		if !strings.Contains(r.rules, "- **"+n+"** ") {
			faults = append(faults, "rule "+n+" is not in "+rulesPage)
		}
	}
	for _, n := range citedTime.FindAllString(text, -1) {
		if !strings.Contains(r.rules, "\n| "+n+" |") {
			faults = append(faults, "time "+n+" is not in "+rulesPage)
		}
	}
	for _, m := range citedPromise.FindAllStringSubmatch(text, -1) {
		// The model numbers its properties the same way, in its own package comment.
		if below(from, "internal/test/verify/model") || isPercentile[m[1]] {
			continue
		}
		if !strings.Contains(r.readme, "\n| P"+m[1]+" |") {
			faults = append(faults, "promise P"+m[1]+" is not in "+readme)
		}
	}
	for _, m := range citedADR.FindAllStringSubmatch(text, -1) {
		if n := "0000"[min(4, len(m[1]+m[2])):] + m[1] + m[2]; !slices.Contains(r.decided, n) {
			faults = append(faults, "there is no docs/adr/"+n)
		}
	}
	for _, m := range citedSection.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(r.rules, "\n## "+m[1]+" ") {
			faults = append(faults, rulesPage+" has no section "+m[1])
		}
	}
	if bareDesign.MatchString(text) {
		faults = append(faults, "a design is cited that is no file of the repository")
	}
	return append(faults, r.missingFiles(text, from)...)
}

// isPercentile tells P50, P99 of a distribution from a promise.
var isPercentile = map[string]bool{"50": true, "90": true, "95": true, "99": true}

// examples are names of files that a text gives as an example.
var examples = map[string]bool{
	"main.go": true, "m_test.go": true, "x_test.go": true, "my-rule.patch": true, "NAME.patch": true, "before.txt": true, "file.go": true, "NAME.go": true,
}

func (r *repository) missingFiles(text, from string) (faults []string) {
	for _, name := range citedFile.FindAllString(text, -1) {
		if base := path.Base(name); examples[base] || strings.HasPrefix(base, "_") || strings.HasPrefix(base, ".") || strings.Contains(text, "://"+name) {
			continue
		}
		if !r.has(strings.TrimPrefix(name, "./"), from) {
			faults = append(faults, "there is no file "+name)
		}
	}
	for _, m := range citedFolder.FindAllStringSubmatch(text, -1) {
		if !examples[path.Base(m[1])] && !r.has(m[1], from) {
			faults = append(faults, "there is no "+m[1])
		}
	}
	return faults
}

// TestCitationsInComments: a comment that cites a rule, a promise, a decision or a file
// cites one of this repository.
func TestCitationsInComments(t *testing.T) {
	r := newRepository(t)
	for _, s := range sources(t) {
		if below(s.dir(), "internal/lint") {
			continue // it speaks of what others cite
		}
		for _, group := range s.file.Comments {
			for _, fault := range r.faults(group.Text(), s.dir()) {
				t.Errorf("%s: %s", s.at(group), fault)
			}
		}
	}
}

// TestCitationsInDocuments is TestCitationsInComments for documents, and for their links.
func TestCitationsInDocuments(t *testing.T) {
	r := newRepository(t)
	for _, d := range documents(t) {
		from := path.Dir(d.path)
		d.lines(func(n int, line string) {
			for _, fault := range r.faults(line, from) {
				t.Errorf("%s:%d: %s", d.path, n, fault)
			}
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if to := m[1]; to != "" && !strings.Contains(to, ":") && !r.files[path.Join(from, to)] {
					t.Errorf("%s:%d: the link leads to %s, which is not there", d.path, n, to)
				}
			}
		})
	}
}

// TestEachPromiseHasItsNumber: P1 to P8 are in the README, each once.
func TestEachPromiseHasItsNumber(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("../..", readme))
	require.NoError(t, err)
	for n := range 8 {
		row := "\n| P" + string(rune('1'+n)) + " | "
		require.Equal(t, 1, strings.Count(string(text), row), "rows of P%d", n+1)
	}
}
