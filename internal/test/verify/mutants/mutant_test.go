package mutants

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the repository, seen from this package.
const root = "../../../.."

// TestPatches: every patch applies, compiles, and names a rule and witnesses that exist.
// Every mutant of the protocol has a witness without brokers, which `mutants fast` asks.
func TestPatches(t *testing.T) {
	all, err := Load(root)
	require.NoError(t, err)
	require.NoError(t, Check(root, all))
	for _, task := range Fast(all) {
		require.NotEqual(t, KindProcess, task.Witness.Kind, "%s: the first witness is the fastest", task.Mutant.Name)
	}
}

// withoutMutant lists the rules of coordinator/replica/DESIGN.md that no patch of the machine can remove.
var withoutMutant = map[string]string{
	"AC-2": "the core loop reserves space, before the machine gets the puts",
}

// TestEveryRuleHasAMutant: each rule of the protocol is removed by some patch, or it is
// said why not.
func TestEveryRuleHasAMutant(t *testing.T) {
	design, err := os.ReadFile(filepath.Join(root, "coordinator/replica/DESIGN.md"))
	require.NoError(t, err)
	all, err := Load(root)
	require.NoError(t, err)
	removed := map[string]bool{}
	for _, m := range all {
		for _, rule := range ruleNumber.FindAllString(m.Rule, -1) {
			removed[rule] = true
		}
	}
	rules := regexp.MustCompile(`(?m)^- \*\*([A-Z]{2}-\d+)\*\*`).FindAllStringSubmatch(string(design), -1)
	require.NotEmpty(t, rules)
	for _, r := range rules {
		_, excused := withoutMutant[r[1]]
		require.NotEqual(t, removed[r[1]], excused, "%s: a mutant or a reason", r[1])
	}
}

func TestParse(t *testing.T) {
	m, err := parse("name", strings.Replace(diffOf(first), "# rule: a rule\n",
		"# rule: FO-4: acknowledged is what is durable.\n# witnesses: script, p TestA/sub, process q/r TestB\n# equivalent: it is not\n", 1))
	require.NoError(t, err)
	require.Equal(t, "FO-4: acknowledged is what is durable.", m.Rule)
	require.Equal(t, "it is not", m.Equivalent)
	require.Equal(t, []Witness{named[KindScript], {KindTest, "p", "TestA/sub"}, {KindProcess, "q/r", "TestB"}}, m.Witnesses)
	require.Equal(t, "process q/r TestB", m.Witnesses[2].String())
	for text, wrong := range map[string]string{
		"# rule: r\n":                       "begins with",
		"# witnesses: sim\n":                "begins with",
		"# rule: r\n# witnesses: simm\n":    "no witness",
		"# rule: r\n# witnesses: p Tast\n":  "no witness",
		"# rule: r\n# witness: sim\n":       "none of",
		"# rule: r\n# witnesses: sim, sim.": "no witness",
	} {
		_, err := parse("name", text+strings.TrimPrefix(diffOf(first), "# rule: a rule\n"))
		require.ErrorContains(t, err, wrong, text)
	}
}

// TestVerdict: a witness notices by a failed check alone.
func TestVerdict(t *testing.T) {
	test, process := Witness{Kind: KindTest}, Witness{Kind: KindProcess}
	const testify = "--- FAIL: TestA (0.00s)\n    a_test.go:7: \n        \tError Trace:\ta_test.go:7\n        \tError:      \tNot equal: \n        \t            \texpected: 1\n        \t            \tactual  : 2\n        \tTest:       \tTestA\n        \tMessages:   \tthe end\nFAIL\n"
	for _, c := range []struct {
		by      Witness
		output  string
		failed  bool
		verdict Verdict
		said    string
	}{
		{test, "ok \tp\t0.1s\n", false, Missed, "passes"},
		{test, "ok \tp\t0.1s [no tests to run]\n", false, Unfit, "there is no such test"},
		{Witness{Test: "TestA"}, "--- SKIP: TestA (0.00s)\nok \tp\t0.1s\n", false, Unfit, "is skipped here"},
		{test, "p.go:3:1: undefined: x\nFAIL\tp [build failed]\n", true, Unfit, "does not compile"},
		{test, "panic: index out of range\n--- FAIL: TestA\n", true, Unfit, "panic: index out of range"},
		{test, "panic: test timed out after 1s\n", true, Unfit, "does not end"},
		{test, "exit status 2\n", true, Unfit, "fails without a failed test"},
		{process, "panic: of a broker\n--- FAIL: TestA\n    a_test.go:9: lost\n", true, Noticed, "lost"},
		{process, "--- FAIL: TestA\n    a_test.go:9: devcluster: n1 (127.0.0.1:1) is not ready: not ready: the cluster is being founded; see n1.log\n", true, Unfit, "a broker did not get ready"},
		{test, testify, true, Noticed, "the end: Not equal: expected: 1 actual : 2"},
		{test, "--- FAIL: TestMutant\n    m_test.go:1: broken promise: P1: n2 lacks it (x: 3 steps, 17 states)\n", true, Noticed, "P1: n2 lacks it (x: 3 steps, 17 states)"},
		{test, "--- FAIL: TestScripts (0.1s)\n    --- FAIL: TestScripts/07_x (0.0s)\n", true, Noticed, "07_x"},
	} {
		verdict, said := c.by.verdict(c.output, c.failed)
		if verdict == Noticed {
			require.Equal(t, c.said, strings.TrimSuffix(said, " (0.0s)"))
		} else {
			require.Equal(t, c.said, said)
		}
		require.Equal(t, c.verdict, verdict, c.output)
	}
}

// small is a module with a rule, a test of it, and mutants of it.
func small(t *testing.T, patches map[string]string) string {
	dir := t.TempDir()
	files := map[string]string{
		"go.mod":                        "module small\n\ngo 1.26\n",
		"coordinator/replica/DESIGN.md": "- **AC-1** A rule.\n",
		"p/p.go":                        before,
		"p/p_test.go":                   "package p\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {\n\tif a() != 1 {\n\t\tt.Error(\"a is not one\")\n\t}\n}\n\nfunc TestB(t *testing.T) {\n\tt.Error(\"it always fails\")\n}\n",
	}
	for name, text := range patches {
		files[Folder+"/"+name+".patch"] = text
	}
	for name, text := range files {
		require.NoError(t, write(filepath.Join(dir, name), []byte(text)))
	}
	return dir
}

func headed(witnesses string, hunks ...string) string {
	return "# rule: AC-1: one is one.\n# witnesses: " + witnesses + "\n" + strings.TrimPrefix(diffOf(hunks...), "# rule: a rule\n")
}

// TestCheck: a patch that does not fit the sources is named with the reason.
func TestCheck(t *testing.T) {
	good := headed("p TestA", first)
	for name, c := range map[string]struct{ patch, wrong string }{
		"good":             {good, ""},
		"does not compile": {strings.Replace(good, "+\treturn 2", "+\treturn x", 1), "undefined: x"},
		"imports too much": {strings.Replace(good, "+\treturn 2", "+\tvar x int\n+\treturn 2", 1), "declared and not used"},
		"does not apply":   {strings.Replace(good, "-\treturn 1", "-\treturn 7", 1), "not in the file"},
		"no such rule":     {strings.Replace(good, "AC-1", "AC-9", 1), "AC-9 is no rule"},
		"no such test":     {strings.Replace(good, "TestA", "TestAA", 1), "there is no TestAA in p"},
		"changes a test":   {strings.ReplaceAll(good, "p/p.go", "p/p_test.go"), "not its tests"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := small(t, map[string]string{"one": c.patch})
			all, err := Load(dir)
			require.NoError(t, err)
			err = Check(dir, all)
			if c.wrong == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.wrong)
			require.ErrorContains(t, err, "one: ")
		})
	}
}

// TestRun: the go command compiles the changed copies in place of the sources, which stay
// as they are; a witness that fails without the mutant too proves nothing.
func TestRun(t *testing.T) {
	dir := small(t, map[string]string{
		"noticed": headed("p TestA", first),
		"missed":  headed("p TestA", second),
		"unfit":   headed("p TestB", first),
	})
	all, err := Load(dir)
	require.NoError(t, err)
	r := Runner{Root: dir, Dir: t.TempDir(), Control: true}
	var reported int
	results := r.RunAll(t.Context(), Tasks(all, ""), 2, func(Result) { reported++ })
	require.Equal(t, 3, reported)
	verdicts := map[string]Verdict{}
	for _, result := range results {
		verdicts[result.Mutant.Name] = result.Verdict
	}
	require.Equal(t, map[string]Verdict{"noticed": Noticed, "missed": Missed, "unfit": Unfit}, verdicts)
	text, err := os.ReadFile(filepath.Join(dir, "p/p.go"))
	require.NoError(t, err)
	require.Equal(t, before, string(text))
	table := Score(results)
	require.Contains(t, table, "| `noticed` | AC-1: one is one. | p TestA | a is not one |")
	require.Contains(t, table, "| MISSED: passes |")
	require.Contains(t, table, "| UNFIT: fails without the mutant too |")
}

// TestOverlay: a mutant in two files has both in its overlay.
func TestOverlay(t *testing.T) {
	dir := small(t, map[string]string{"two": headed("p TestA", first) + strings.ReplaceAll(strings.TrimPrefix(diffOf(second), "# rule: a rule\n"), "p/p.go", "p/q.go")})
	require.NoError(t, write(filepath.Join(dir, "p/q.go"), []byte(before)))
	all, err := Load(dir, "two")
	require.NoError(t, err)
	file, err := all[0].Overlay(dir, t.TempDir())
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var overlay struct{ Replace map[string]string }
	require.NoError(t, json.Unmarshal(text, &overlay))
	require.Len(t, overlay.Replace, 2)
	changed, err := os.ReadFile(overlay.Replace[filepath.Join(dir, "p/q.go")])
	require.NoError(t, err)
	require.Contains(t, string(changed), "return 3")
}

// TestRefresh: a patch follows its lines within a file and into another one, and stays as
// it is if they have changed.
func TestRefresh(t *testing.T) {
	dir := small(t, map[string]string{"a": headed("p TestA", first), "b": headed("p TestA", second), "both": headed("p TestA", first, second)})
	half := strings.Index(before, "func b()")
	require.NoError(t, write(filepath.Join(dir, "p/p.go"), []byte(before[:half])))
	require.NoError(t, write(filepath.Join(dir, "p/q.go"), []byte("package p\n\n// moved\n"+before[half:])))
	all, err := Load(dir)
	require.NoError(t, err)
	require.Error(t, Check(dir, all))
	names, err := Refresh(dir, all)
	require.NoError(t, err)
	require.Equal(t, []string{"b", "both"}, names)
	all, err = Load(dir)
	require.NoError(t, err)
	require.NoError(t, Check(dir, all))
	changed, err := all[2].sources(dir)
	require.NoError(t, err)
	require.Contains(t, changed["p/p.go"], "return 2")
	require.Contains(t, changed["p/q.go"], "return 3")
	require.Equal(t, "AC-1: one is one.", all[2].Rule)

	require.NoError(t, write(filepath.Join(dir, "p/q.go"), []byte("package p\n")))
	_, err = Refresh(dir, all)
	require.ErrorContains(t, err, "b: the hunk at line 4 of p/q.go: its lines are in no file")
	require.NoError(t, write(filepath.Join(dir, "p/r.go"), []byte(before[half:])))
	require.NoError(t, write(filepath.Join(dir, "p/s.go"), []byte(before[half:])))
	_, err = Refresh(dir, all)
	require.ErrorContains(t, err, "in several files")
}

// TestRefreshedPatchIsADiff: other tools read the lines' numbers, too.
func TestRefreshedPatchIsADiff(t *testing.T) {
	longer := "@@ -3,3 +3,4 @@ package p\n func a() int {\n-\treturn 1\n+\tx := 2\n+\treturn x\n }\n"
	dir := small(t, map[string]string{"one": headed("p TestA", longer, second)})
	require.NoError(t, os.Remove(filepath.Join(dir, "p/p.go")))
	require.NoError(t, write(filepath.Join(dir, "p/q.go"), []byte("// moved\n"+before)))
	all, err := Load(dir)
	require.NoError(t, err)
	_, err = Refresh(dir, all)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, Folder, "one.patch"))
	require.NoError(t, err)
	want := headed("p TestA", strings.Replace(longer, "@@ -3,3 +3,4 @@ package p", "@@ -4,3 +4,4 @@", 1), strings.Replace(second, "@@ -7,3 +7,3 @@ func a() int {", "@@ -8,3 +9,3 @@", 1))
	require.Equal(t, strings.ReplaceAll(strings.Replace(want, "index 1..2 100644\n", "", 1), "p/p.go", "p/q.go"), string(text))
}

// TestNew: the changes of the working tree become a patch, and go from the working tree.
func TestNew(t *testing.T) {
	dir := small(t, nil)
	git := func(args ...string) {
		cmd := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	_, err := New(dir, "mine", "AC-1: one is one.", "p TestA")
	require.ErrorContains(t, err, "no diff")
	require.NoError(t, write(filepath.Join(dir, "p/p.go"), []byte(strings.Replace(before, "return 1", "return 2", 1))))
	_, err = New(dir, "mine", "", "p TestA")
	require.ErrorContains(t, err, "begins with")
	_, err = New(dir, "mine", "AC-1: one is one.", "p TestA")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "p/p.go"))
	require.NoError(t, err)
	require.Equal(t, before, string(text))
	all, err := Load(dir, "mine")
	require.NoError(t, err)
	require.NoError(t, Check(dir, all))
	r := Runner{Root: dir, Dir: t.TempDir()}
	require.Equal(t, Noticed, r.Run(t.Context(), &all[0], all[0].Witnesses[0]).Verdict)
}
