package replica

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rule is one entry of DESIGN.md: its number, and the code and scripts behind the dash.
type rule struct{ name, code, scripts string }

var (
	ruleNumber = regexp.MustCompile(`\b(ID|AC|DW|FO|RB|EL|CU|CH)-\d+\b`)
	ruleEntry  = regexp.MustCompile(`(?s)^- \*\*([A-Z]{2}-\d+)\*\* .*— (.*) · scripts? ([0-9, ]+)`)
	scriptName = regexp.MustCompile(`\d\d`)
	inFile     = regexp.MustCompile("((?:`\\w+`(?:, | and )?)+) in `([\\w/]+\\.go)`")
	quoted     = regexp.MustCompile("`(\\w+|[\\w/]+\\.go)`")
)

// rules reads DESIGN.md: an entry begins with "- **", and continues up to an empty line or
// the next entry.
func rules(t *testing.T) map[string]rule {
	text, err := os.ReadFile("DESIGN.md")
	require.NoError(t, err)
	found := map[string]rule{}
	for _, paragraph := range strings.Split(strings.ReplaceAll(string(text), "\n- ", "\n\n- "), "\n\n") {
		entry := strings.Join(strings.Fields(paragraph), " ")
		if !strings.HasPrefix(entry, "- **") {
			continue
		}
		m := ruleEntry.FindStringSubmatch(entry)
		require.NotNil(t, m, "an entry without its code or script: %s", entry)
		require.NotContains(t, found, m[1])
		found[m[1]] = rule{m[1], m[2], m[3]}
	}
	require.NotEmpty(t, found)
	return found
}

// TestScriptsAndRules: each script names rules, and each of these names the script.
func TestScriptsAndRules(t *testing.T) {
	rules := rules(t)
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	for i, file := range files {
		number := filepath.Base(file)[:2]
		require.Equal(t, fmt.Sprintf("%02d", i+1), number, "scripts are numbered without gaps")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		header, _, _ := strings.Cut(string(text), "\n\n")
		named := ruleNumber.FindAllString(header, -1)
		require.NotEmpty(t, named, "%s names no rule", file)
		for _, name := range named {
			require.Contains(t, rules, name, "%s names a rule that DESIGN.md has not", file)
			require.Contains(t, rules[name].scripts, number, "%s shows %s", file, name)
		}
	}
	for _, r := range rules {
		for _, number := range scriptName.FindAllString(r.scripts, -1) {
			n, err := strconv.Atoi(number)
			require.NoError(t, err)
			require.LessOrEqual(t, n, len(files), "%s: there is no script %s", r.name, number)
		}
	}
}

// TestRulesAndCode: the functions that DESIGN.md names are in the files that it names, and
// the rules that comments name are in DESIGN.md.
func TestRulesAndCode(t *testing.T) {
	rules := rules(t)
	declared := declarations(t)
	for _, r := range rules {
		for _, m := range inFile.FindAllStringSubmatch(r.code, -1) {
			for _, name := range quoted.FindAllStringSubmatch(m[1], -1) {
				require.Contains(t, declared[m[2]], name[1], "%s: %s", r.name, m[2])
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(r.code, -1) {
			if strings.HasSuffix(m[1], ".go") {
				require.Contains(t, declared, m[1], r.name)
			}
		}
	}
	for file := range declared {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range ruleNumber.FindAllString(string(text), -1) {
			require.Contains(t, rules, name, "%s names a rule that DESIGN.md has not", file)
		}
	}
}

// declarations lists the functions and types of each file of the package, and of its parts.
func declarations(t *testing.T) map[string][]string {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	parts, err := filepath.Glob("*/*.go")
	require.NoError(t, err)
	files = append(files, parts...)
	declared := map[string][]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		declared[file] = []string{}
		for _, d := range tree.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				declared[file] = append(declared[file], d.Name.Name)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok {
						declared[file] = append(declared[file], s.Name.Name)
					}
				}
			}
		}
	}
	return declared
}
