package mutants

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const before = "package p\n\nfunc a() int {\n\treturn 1\n}\n\nfunc b() int {\n\treturn 1\n}\n"

func diffOf(hunks ...string) string {
	return "# rule: a rule\ndiff --git a/p/p.go b/p/p.go\nindex 1..2 100644\n--- a/p/p.go\n+++ b/p/p.go\n" + strings.Join(hunks, "")
}

const (
	third  = "\nfunc c() int {\n\treturn 1\n}\n"
	first  = "@@ -3,3 +3,3 @@ package p\n func a() int {\n-\treturn 1\n+\treturn 2\n }\n"
	second = "@@ -7,3 +7,3 @@ func a() int {\n func b() int {\n-\treturn 1\n+\treturn 3\n }\n"
	vague  = "@@ -4,1 +4,1 @@ func a() int {\n-\treturn 1\n+\treturn 2\n"
)

// TestApply: a hunk goes where it was made, or to the one other place that has its lines.
func TestApply(t *testing.T) {
	for name, c := range map[string]struct {
		diff, text, want, wrong string
	}{
		"one hunk":              {diff: diffOf(first), text: before, want: strings.Replace(before, "return 1", "return 2", 1)},
		"two hunks":             {diff: diffOf(first, second), text: before, want: "package p\n\nfunc a() int {\n\treturn 2\n}\n\nfunc b() int {\n\treturn 3\n}\n"},
		"lines were added":      {diff: diffOf(second), text: "// new\n\n" + before, want: "// new\n\n" + strings.Replace(before, "b() int {\n\treturn 1", "b() int {\n\treturn 3", 1)},
		"no context, its place": {diff: diffOf(vague), text: before, want: strings.Replace(before, "return 1", "return 2", 1)},
		"no context, moved":     {diff: diffOf(vague), text: "\n" + before, wrong: "its lines are in the file 2 times"},
		"moved together": {diff: diffOf(first, strings.Replace(vague, "-4,1 +4,1", "-8,1 +8,1", 1)), text: "\n" + before + third,
			want: "\n" + strings.ReplaceAll(before, "return 1", "return 2") + third},
		"changed since":      {diff: diffOf(first), text: strings.ReplaceAll(before, "return 1", "return 4"), wrong: "its lines are not in the file"},
		"hunks out of order": {diff: diffOf(second, first), text: before, wrong: "its lines are not in the file"},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := parseDiff(c.diff)
			require.NoError(t, err)
			require.Len(t, files, 1)
			require.Equal(t, "p/p.go", files[0].path)
			got, err := files[0].apply(c.text)
			if c.wrong != "" {
				require.ErrorContains(t, err, c.wrong)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// TestParseDiff: a diff that creates, deletes or renames files is refused.
func TestParseDiff(t *testing.T) {
	for diff, wrong := range map[string]string{
		"":                                   "no diff",
		"--- a/p.go\n+++ b/p.go\n":           "no change",
		"--- /dev/null\n+++ b/p.go\n":        "it makes none",
		"--- a/p.go\n+++ /dev/null\n":        "it removes none",
		"--- a/p.go\n+++ b/p.go\n+text\n":    "before the first hunk",
		diffOf(first) + "text\n":             "no line of a hunk",
		"--- a/p.go\n+++ b/p.go\nrename x\n": "before the first hunk",
	} {
		_, err := parseDiff(diff)
		require.ErrorContains(t, err, wrong, diff)
	}
}
