package replica

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	ruleNumber = regexp.MustCompile(`\b(ID|AC|DW|FO|RB|EL|CU|CH)-\d+\b`)
	ruleEntry  = regexp.MustCompile(`(?m)^- \*\*([A-Z]{2}-\d+)\*\* `)
)

// rules returns the numbers of the rules in DESIGN.md.
func rules(t *testing.T) []string {
	text, err := os.ReadFile("DESIGN.md")
	require.NoError(t, err)
	var numbers []string
	for _, m := range ruleEntry.FindAllStringSubmatch(string(text), -1) {
		require.NotContains(t, numbers, m[1])
		numbers = append(numbers, m[1])
	}
	require.NotEmpty(t, numbers)
	for _, number := range ruleNumber.FindAllString(string(text), -1) {
		require.Contains(t, numbers, number, "DESIGN.md refers to a rule that it does not have")
	}
	return numbers
}

// TestScriptsAndRules: each script names rules of DESIGN.md, and each rule is named by a script.
func TestScriptsAndRules(t *testing.T) {
	rules := rules(t)
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	var shown []string
	for i, file := range files {
		require.Equal(t, fmt.Sprintf("%02d", i+1), filepath.Base(file)[:2], "scripts are numbered without gaps")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		header, _, _ := strings.Cut(string(text), "\n\n")
		named := ruleNumber.FindAllString(header, -1)
		require.NotEmpty(t, named, "%s names no rule", file)
		require.Subset(t, rules, named, file)
		shown = append(shown, named...)
	}
	require.Subset(t, shown, rules, "a rule without a script")
}

// TestRulesAndCode: comments name rules of DESIGN.md, and each rule is named by a comment at the code that implements it.
func TestRulesAndCode(t *testing.T) {
	rules := rules(t)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	parts, err := filepath.Glob("*/*.go")
	require.NoError(t, err)
	var implemented []string
	for _, file := range append(files, parts...) {
		if strings.HasSuffix(file, "_test.go") || file == "doc.go" {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		named := ruleNumber.FindAllString(string(text), -1)
		require.Subset(t, rules, named, file)
		implemented = append(implemented, named...)
	}
	require.Subset(t, implemented, rules, "a rule without code")
}
