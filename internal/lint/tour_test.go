package lint_test

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stop is a function in a file, as documents name it.
var stop = regexp.MustCompile("`([\\w./-]+\\.go):(\\w+)`")

// tourStop is a line that begins a stop of a walk in docs/TOUR.md.
var tourStop = regexp.MustCompile("^(\\d+)\\. `[\\w./-]+\\.go:\\w+`")

// mostStops is how long a walk may be.
const mostStops = 15

// functions lists the functions and methods of each file.
func functions(t *testing.T) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, s := range sources(t) {
		all[s.path] = map[string]bool{}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				all[s.path][f.Name.Name] = true
			}
		}
	}
	return all
}

// TestNamedFunctionsExist: each `file.go:Function` of a document is in the source.
func TestNamedFunctionsExist(t *testing.T) {
	known, named := functions(t), 0
	for _, d := range documents(t) {
		d.lines(func(n int, line string) {
			for _, m := range stop.FindAllStringSubmatch(line, -1) {
				named++
				switch of, ok := known[m[1]]; {
				case !ok:
					t.Errorf("%s:%d: there is no file %s", d.path, n, m[1])
				case !of[m[2]]:
					t.Errorf("%s:%d: %s has no function %s", d.path, n, m[1], m[2])
				}
			}
		})
	}
	require.NotZero(t, named)
}

var (
	// namesIn are names in a file, as documents write them: `A`, `b` and `C` in `file.go`.
	namesIn = regexp.MustCompile("((?:`\\w+`(?:, and |, | and | or )?)+) in `([\\w./-]+\\.go)`")
	oneName = regexp.MustCompile("`(\\w+)`")
)

// TestNamesAreInTheirFiles: each name that a document says to be in a file is an identifier there. The file may be the end of a path.
func TestNamesAreInTheirFiles(t *testing.T) {
	named := 0
	for _, d := range documents(t) {
		for _, m := range namesIn.FindAllStringSubmatch(strings.ReplaceAll(d.text, "\n", " "), -1) {
			for _, name := range oneName.FindAllStringSubmatch(m[1], -1) {
				named++
				if !mentions(sources(t), m[2], name[1]) {
					t.Errorf("%s: %s has no %s", d.path, m[2], name[1])
				}
			}
		}
	}
	require.Greater(t, named, 10)
}

// mentions reports whether a file has an identifier.
func mentions(all []source, file, name string) (found bool) {
	for _, s := range all {
		if s.path == file || strings.HasSuffix(s.path, "/"+file) {
			ast.Inspect(s.file, func(n ast.Node) bool {
				i, ok := n.(*ast.Ident)
				found = found || ok && i.Name == name
				return !found
			})
		}
	}
	return found
}

// TestWalksOfTheTour: the four walks are there, and none is longer than a person reads.
func TestWalksOfTheTour(t *testing.T) {
	heading := regexp.MustCompile(`^## The life of an? (\w+)$`)
	item := regexp.MustCompile(`^\d+\. `)
	stops, walk := map[string]int{}, ""
	documentOf(t, "docs/TOUR.md").lines(func(n int, line string) {
		if m := heading.FindStringSubmatch(line); m != nil {
			walk = m[1]
		} else if len(line) > 0 && line[0] == '#' {
			walk = ""
		}
		if !item.MatchString(line) || walk == "" {
			return
		}
		stops[walk]++
		require.Regexp(t, tourStop, line, "docs/TOUR.md:%d: a stop begins with `file.go:Function`", n)
	})
	require.Len(t, stops, 4)
	for _, walk := range []string{"put", "finish", "election", "restart"} {
		require.Contains(t, stops, walk)
		require.LessOrEqual(t, stops[walk], mostStops, "the life of a %s", walk)
	}
}

// TestQuestionsOfTheTour: ten questions of a newcomer, each answered within three files.
func TestQuestionsOfTheTour(t *testing.T) {
	questions, asked := 0, false
	documentOf(t, "docs/TOUR.md").lines(func(n int, line string) {
		asked = asked || line == "| question | files |"
		if !asked || !strings.Contains(line, "? | ") {
			return
		}
		questions++
		files := map[string]bool{}
		for _, m := range stop.FindAllStringSubmatch(line, -1) {
			files[m[1]] = true
		}
		require.LessOrEqual(t, len(files), 3, "docs/TOUR.md:%d: %s", n, line)
	})
	require.GreaterOrEqual(t, questions, 10)
}

// TestArchitectureIsShort: a newcomer reads it in one go.
func TestArchitectureIsShort(t *testing.T) {
	lines := 0
	documentOf(t, "docs/ARCHITECTURE.md").lines(func(int, string) { lines++ })
	require.LessOrEqual(t, lines, mostLines+1, "the last line ends")
}

// TestArchitectureHasEveryPackage: the picture names each package of the product.
func TestArchitectureHasEveryPackage(t *testing.T) {
	_, picture, _ := strings.Cut(documentOf(t, "docs/ARCHITECTURE.md").text, "```\n")
	picture, _, _ = strings.Cut(picture, "```")
	for _, s := range sources(t) {
		dir := s.dir()
		part := below(dir, "internal/test") || below(dir, "cmd/nsqctl") || below(dir, "client") || below(dir, "bench") || below(dir, "docs")
		if !s.test && !part && !regexp.MustCompile(`\b`+path.Base(dir)+`\b`).MatchString(picture) {
			t.Errorf("the picture of docs/ARCHITECTURE.md does not have %s", dir)
		}
	}
}

// mostLines is how long docs/ARCHITECTURE.md may be, with its table of buffers.
const mostLines = 215
