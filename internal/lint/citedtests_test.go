package lint_test

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// goTest is a command in backquotes that runs tests.
	goTest = regexp.MustCompile("`([A-Z_]+=\\S+ )*go test ([^`]*)`")
	// runs is the pattern of a command, with or without quotes.
	runs = regexp.MustCompile(`-(run|bench|fuzz) (?:'([^']*)'|"([^"]*)"|(\S+))`)
	// testName is the name of a test in backquotes, perhaps of a part of it.
	testName = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w+)[^`]*`")
)

// tests lists the tests, benchmarks and fuzz targets of each package.
func tests(t *testing.T) map[string][]string {
	all := map[string][]string{}
	for _, s := range sources(t) {
		all[s.dir()] = append(all[s.dir()], testsOf(s)...)
	}
	return all
}

func testsOf(s source) (names []string) {
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !s.test {
			continue
		}
		for _, kind := range []string{"Test", "Fuzz", "Benchmark"} {
			if strings.HasPrefix(f.Name.Name, kind) {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

// citation is a command that runs tests of packages.
type citation struct {
	packages []string
	patterns []string // of -run, -bench and -fuzz
}

// citationOf reads a command without "go test ". A command of another module has none.
func citationOf(command string) (c citation) {
	command = strings.ReplaceAll(command, `\|`, "|") // a table's cell
	if strings.HasPrefix(command, "-C ") {
		return citation{}
	}
	for _, m := range runs.FindAllStringSubmatch(command, -1) {
		if p := m[2] + m[3] + m[4]; p != "^$" && p != "XXX" {
			c.patterns = append(c.patterns, p)
		}
	}
	for _, word := range strings.Fields(runs.ReplaceAllString(command, "")) {
		if strings.HasPrefix(word, "./") && !strings.HasSuffix(word, "...") {
			c.packages = append(c.packages, path.Clean(word))
		}
	}
	return c
}

// fault says what is wrong with a citation; "" if nothing is.
func (c citation) fault(known map[string][]string) string {
	for _, dir := range c.packages {
		names, ok := known[dir]
		if !ok {
			return "there is no package " + dir
		}
		for _, p := range c.patterns {
			top, _, _ := strings.Cut(p, "/") // the rest names parts of a test
			re, err := regexp.Compile(top)
			if err != nil {
				return err.Error()
			}
			if !slices.ContainsFunc(names, re.MatchString) {
				return dir + " has no test like " + p
			}
		}
	}
	return ""
}

// TestCitedTestsExist: a command in a document runs at least one test, and a test that a
// document names is there.
func TestCitedTestsExist(t *testing.T) {
	known := tests(t)
	var all []string
	for _, names := range known {
		all = append(all, names...)
	}
	cited := 0
	for _, d := range documents(t) {
		d.lines(func(n int, line string) {
			for _, m := range goTest.FindAllStringSubmatch(line, -1) {
				cited++
				if fault := citationOf(m[2]).fault(known); fault != "" {
					t.Errorf("%s:%d: %s: %s", d.path, n, m[0], fault)
				}
			}
			for _, m := range testName.FindAllStringSubmatch(line, -1) {
				if !slices.ContainsFunc(all, func(n string) bool { return strings.HasPrefix(n, m[1]) }) {
					t.Errorf("%s:%d: there is no test %s", d.path, n, m[1])
				}
			}
		})
	}
	require.Greater(t, cited, 40)
}

// TestRowsOfBugsAreShort: a row is read at a glance, and the page in a few minutes.
func TestRowsOfBugsAreShort(t *testing.T) {
	cell := regexp.MustCompile(`[^\\]\| `)
	rows := 0
	documentOf(t, "docs/bugs.md").lines(func(n int, line string) {
		if !strings.HasPrefix(line, "| ") {
			return
		}
		rows++
		for _, c := range cell.Split(strings.TrimPrefix(line, "| "), -1) {
			require.LessOrEqual(t, len([]rune(c)), mostOfACell, "docs/bugs.md:%d: %s", n, c)
		}
	})
	require.Greater(t, rows, 40)
	require.Less(t, rows, 60, "docs/bugs.md keeps the bugs that teach: a new one replaces the least instructive")
}

// mostOfACell is the length of a cell of docs/bugs.md at most.
const mostOfACell = 200
