package lint_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// document is one Markdown file of the repository.
type document struct {
	path string // from the root of the repository, with slashes
	text string
}

// lines calls f for each line, with its number.
func (d document) lines(f func(n int, line string)) {
	for i, line := range strings.Split(d.text, "\n") {
		f(i+1, line)
	}
}

// documentOf reads one document.
func documentOf(t *testing.T, name string) document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", filepath.FromSlash(name)))
	require.NoError(t, err)
	return document{path: name, text: string(text)}
}

// documents reads all Markdown files.
func documents(t *testing.T) (all []document) {
	t.Helper()
	for _, name := range repositoryFiles(t) {
		if strings.HasSuffix(name, ".md") {
			all = append(all, documentOf(t, name))
		}
	}
	require.NotEmpty(t, all)
	return all
}

// repositoryFiles lists all files, but hidden ones and what a build makes.
func repositoryFiles(t *testing.T) (names []string) {
	t.Helper()
	const root = "../.."
	built := map[string]bool{"bin": true, "dist": true, "data": true}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && rel != "." && rel != ".ci" && (strings.HasPrefix(d.Name(), ".") || built[rel] || d.Name() == "node_modules"):
			return filepath.SkipDir
		case !d.IsDir():
			names = append(names, filepath.ToSlash(rel))
		}
		return nil
	})
	require.NoError(t, err)
	return names
}

// subject is a sentence that begins with a word for a person or a thing without a name.
var subject = regexp.MustCompile(`(?:^[-*|>0-9. ]*|[.;:] |\| )(?:Who|Whoever|Whose|What|Whatever) [^.?]*[.?]?`)

// TestDocumentsNameTheirSubject: a sentence begins with the thing that it is about. A
// question may begin with What.
func TestDocumentsNameTheirSubject(t *testing.T) {
	for _, d := range documents(t) {
		d.lines(func(n int, line string) {
			for _, s := range subject.FindAllString(line, -1) {
				if !strings.HasSuffix(s, "?") {
					t.Errorf("%s:%d: %s", d.path, n, s)
				}
			}
		})
	}
}
