package mutants

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// Verdict is the judgement of a witness about a mutant.
type Verdict int

// The verdicts. Noticed and Harmless are as they should be.
const (
	// Noticed: a check failed, and without the mutant none does.
	Noticed Verdict = iota + 1
	// Harmless: the model finds nothing, as the patch argues.
	Harmless
	// Missed: the test passes with the mutant.
	Missed
	// Unfit: nothing is proven, because the mutant does not compile, the test panics or
	// does not end, or it fails without the mutant too.
	Unfit
)

// String is the verdict as the tool prints it.
func (v Verdict) String() string {
	return [...]string{"?", "noticed", "harmless", "MISSED", "UNFIT"}[v]
}

// Result is the verdict of one witness about one mutant.
type Result struct {
	Mutant  *Mutant
	Witness Witness
	Verdict Verdict
	Said    string // the first failed check
	Took    time.Duration
	Output  string // of the test, if the verdict is not as it should be
}

// OK reports whether the verdict is as it should be.
func (r Result) OK() bool { return r.Verdict == Noticed || r.Verdict == Harmless }

// Runner runs witnesses. Its methods may be called by several goroutines.
type Runner struct {
	Root string
	Dir  string // for the overlays
	// HarmlessStates bounds the model's search for the harm of a mutant that is argued to
	// do none.
	HarmlessStates int
	// Control has every witness run without the mutant, too.
	Control bool

	mu       sync.Mutex
	controls map[string]*control
}

// control is a run of a witness without a mutant. Several mutants share it.
type control struct {
	once   sync.Once
	failed string
}

const (
	// modelStates bounds the model's search for the harm of a mutant.
	modelStates = 8_000_000
	// furtherStates is how much further the model searches without the mutant.
	furtherStates = 10_000
	// processTries is how often a test with brokers may run before it has to notice: the
	// order of events in processes is a matter of chance.
	processTries = 3
	// testTimeout is far above the time that a witness takes.
	testTimeout = 15 * time.Minute
)

// Run has one witness judge one mutant.
func (r *Runner) Run(ctx context.Context, m *Mutant, w Witness) Result {
	began := time.Now()
	result := Result{Mutant: m, Witness: w}
	r.judge(ctx, &result)
	result.Took = time.Since(began)
	if result.OK() {
		result.Output = ""
	}
	return result
}

func (r *Runner) judge(ctx context.Context, result *Result) {
	m, w := result.Mutant, result.Witness
	overlay, err := m.Overlay(r.Root, r.Dir)
	if err != nil {
		result.Verdict, result.Said = Unfit, err.Error()
		return
	}
	tries := 1
	if w.Kind == KindProcess {
		tries = processTries
	}
	for try := 1; try <= tries && ctx.Err() == nil; try++ {
		var failed bool
		result.Output, failed = r.test(ctx, w, m.Name, overlay, r.arguments(m, w)...)
		result.Verdict, result.Said = w.verdict(result.Output, failed)
		if result.Verdict == Noticed && try > 1 {
			result.Said += fmt.Sprintf(" (try %d)", try)
		}
		if result.Verdict != Missed {
			break
		}
	}
	r.expect(ctx, result)
}

// expect compares a verdict with that which the patch announces, and with the same
// witness without the mutant.
func (r *Runner) expect(ctx context.Context, result *Result) {
	m, w := result.Mutant, result.Witness
	if ctx.Err() != nil {
		result.Verdict, result.Said = Unfit, "interrupted"
		return
	}
	switch harmless := m.Equivalent != "" && w.Kind == KindModel; {
	case harmless && result.Verdict == Missed:
		result.Verdict, result.Said = Harmless, nothingFound.FindString(result.Output)
		return
	case harmless && result.Verdict == Noticed:
		result.Verdict, result.Said = Unfit, "argued to be harmless, and yet: "+result.Said
	case result.Verdict == Noticed && r.Control:
		if failed := r.without(ctx, m, w, result.Output); failed != "" {
			result.Verdict, result.Said, result.Output = Unfit, "fails without the mutant too", failed
		}
	}
}

func (r *Runner) arguments(m *Mutant, w Witness) []string {
	states := modelStates
	if m.Equivalent != "" {
		states = r.HarmlessStates
	}
	switch w.Kind {
	case KindModel:
		return []string{"-model.states=" + strconv.Itoa(states)}
	default:
		return nil
	}
}

// without runs a witness without the mutant, once for all mutants; the model as far as
// it went with this one. It returns the output if the witness fails.
func (r *Runner) without(ctx context.Context, m *Mutant, w Witness, output string) string {
	key, args := w.String(), []string(nil)
	if reached := reachedStates.FindStringSubmatch(output); w.Kind == KindModel && reached != nil {
		states, _ := strconv.Atoi(reached[1])
		args = []string{"-model.search=" + m.Name, "-model.states=" + strconv.Itoa(states+furtherStates)}
		key += " " + m.Name
	}
	r.mu.Lock()
	if r.controls == nil {
		r.controls = map[string]*control{}
	}
	c := r.controls[key]
	if c == nil {
		c = &control{}
		r.controls[key] = c
	}
	r.mu.Unlock()
	c.once.Do(func() {
		if out, failed := r.test(ctx, w, "", "", args...); failed {
			c.failed = out
		}
	})
	return c.failed
}

// test runs a witness with a mutant, or with none. The overlay is for the test itself and
// for the brokers that it builds. The output is that of the go command.
func (r *Runner) test(ctx context.Context, w Witness, mutant, overlay string, args ...string) (output string, failed bool) {
	run := "^" + strings.ReplaceAll(w.Test, "/", "$/^") + "$"
	command := []string{"test", "-overlay=" + overlay, "-vet=off", "-ldflags=-s -w", "-count=1", "-v", "-timeout=" + testTimeout.String()}
	variables := []string{"LOCKSTEP_LONG="}
	if w.Kind == KindScript || w.Kind == KindTest { // compiling takes longer than running
		command, variables = append(command, "-gcflags=-l"), append(variables, "GOGC=400")
	}
	cmd := exec.CommandContext(ctx, "go", append(append(command, "-run", run, "./"+w.Package), args...)...)
	cmd.Dir = r.Root
	cmd.Env = append(append(os.Environ(), variables...), clusters.BinariesEnv+"=", env.MutantEnv+"="+mutant, clusters.OverlayEnv+"="+overlay)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // the test, too
	out, err := cmd.CombinedOutput()
	return string(out), err != nil
}

var (
	nothingFound  = regexp.MustCompile(`nothing in \d+ states, to the end: \w+`)
	reachedStates = regexp.MustCompile(`, (\d+) states\)`)
	panics        = regexp.MustCompile(`(?m)^panic: .*`)
	unready       = regexp.MustCompile(`devcluster: \S+ \(\S+\) is not ready: `) // the words of internal/test/devcluster
)

// verdict judges the output of a test with a mutant.
func (w Witness) verdict(output string, failed bool) (Verdict, string) {
	switch {
	case !failed && strings.Contains(output, "no tests to run"):
		return Unfit, "there is no such test"
	case !failed && strings.Contains(output, "--- SKIP: "+w.Test+" "):
		return Unfit, "is skipped here"
	case !failed:
		return Missed, "passes"
	case strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"):
		return Unfit, "does not compile"
	case strings.Contains(output, "panic: test timed out"):
		return Unfit, "does not end"
	case w.Kind != KindProcess && panics.MatchString(output): // brokers may panic
		return Unfit, panics.FindString(output)
	case w.Kind == KindProcess && unready.MatchString(output): // a slow start is no notice
		return Unfit, "a broker did not get ready"
	case !strings.Contains(output, "--- FAIL"):
		return Unfit, "fails without a failed test"
	}
	return Noticed, said(output)
}

// sayings are the forms in which checks report a failure, the more specific ones first:
// the model and the simulator, scripts, the judge, power cuts, brokers that
// ended, testify. The groups are what is quoted.
var sayings = []*regexp.Regexp{
	regexp.MustCompile(`broken promise: ([^\n]*)`),
	regexp.MustCompile(`(?m)^ +--- FAIL: TestScripts/(\S+)`),
	regexp.MustCompile(`(?m)^[ \t]*((?:lost|unexpected|malformed|refused|rolled back|duplicate|rewritten|torn|hole|reordered|early|stray|passed|shared|attempts|vanished|stale|redelivered): [^\n]*)`),
	regexp.MustCompile(`(?m)^ *[a-z0-9_]+\.go:\d+: ((?:n\d+ ended by itself|waited)[^\n]*)`),
	regexp.MustCompile(`(?s)Error: +\t?(.*?)\n\s+Test: +\t?\S+(?:\n\s+Messages: +\t?([^\n]*))?`),
}

// plain is a line of a test's log. The failed check of a test without testify is its last.
var plain = regexp.MustCompile(`(?m)^ *[a-z0-9_]+_test\.go:\d+: ([^\n]*)`)

// saidBytes bounds a quotation in a table.
const saidBytes = 200

// said is the first failed check of a failed test.
func said(output string) string {
	for _, form := range sayings {
		if groups := form.FindStringSubmatch(output); groups != nil {
			s := groups[1]
			if len(groups) > 2 && groups[2] != "" {
				s = groups[2] + ": " + s
			}
			return brief(s)
		}
	}
	if lines := plain.FindAllStringSubmatch(output, -1); lines != nil {
		return brief(lines[len(lines)-1][1])
	}
	return "failed"
}

// brief puts a text on one line and cuts it to saidBytes.
func brief(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return text[:min(len(text), saidBytes)]
}
