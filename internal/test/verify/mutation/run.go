package mutation

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Runner measures.
type Runner struct {
	Root    string
	Dir     string   // for sources and binaries
	Tests   []string // packages whose tests judge, as directories relative to Root
	Workers int
	Own     bool // judge a site by the tests of its package only
	Log     func(format string, args ...any)
	Judged  func(Verdict) // receives each final verdict; nil: nothing
}

// Verdict is what the tests said about a site.
type Verdict struct {
	Site
	Noticed bool
	By      string // the test, if it is noticed
	Reached int    // tests that reach the site
	Unfit   bool   // it does not compile
	Took    time.Duration
}

// test is one test function.
type test struct {
	name string
	took time.Duration
}

const (
	// hang is how long a run of tests may take, in addition to ten times the time that they took without a mutant.
	hang = 20 * time.Second
	// most is how many tests of another package judge a mutant.
	most = 60
	// addressSpace bounds a test binary, in KiB: a mutant may allocate without end. The race detector needs more.
	addressSpace = 8 << 20
)

// Run judges the sites: each by the tests of its package, then those that are left by the tests of one other package after another.
func (r *Runner) Run(ctx context.Context, sites []Site) ([]Verdict, error) {
	file, without, err := compile(ctx, r.Root, r.Dir, sites)
	if err != nil {
		return nil, err
	}
	r.Log("%d sites, %d of them do not compile", len(sites), len(without))
	verdicts := make([]Verdict, len(sites))
	var packages []string
	for i, s := range sites {
		verdicts[i] = Verdict{Site: s, Unfit: without[i+1]}
		if verdicts[i].Unfit {
			r.judged(verdicts[i])
		}
		if !slices.Contains(packages, s.Package) {
			packages = append(packages, s.Package)
		}
	}
	slices.SortFunc(packages, func(a, b string) int { return cmp.Compare(slices.Index(r.Tests, a), slices.Index(r.Tests, b)) })
	for _, pkg := range packages {
		own := open(verdicts, func(v Verdict) bool { return v.Package == pkg })
		if err := r.stage(ctx, file, pkg, verdicts, own); err != nil {
			return nil, err
		}
		r.Log("%s: its own tests notice %d of %d", pkg, len(own)-len(open(verdicts, func(v Verdict) bool { return v.Package == pkg })), len(own))
	}
	if r.Own {
		return verdicts, ctx.Err()
	}
	for _, pkg := range r.Tests {
		imported, err := r.imports(ctx, pkg)
		if err != nil {
			return nil, err
		}
		left := open(verdicts, func(v Verdict) bool { return v.Package != pkg && v.Kind != Lock && imported[v.Package] })
		if err := r.stage(ctx, file, pkg, verdicts, left); err != nil {
			return nil, err
		}
	}
	for _, i := range open(verdicts, func(Verdict) bool { return true }) {
		r.Log("missed (%d tests reach it): %s", verdicts[i].Reached, verdicts[i].Site)
		r.judged(verdicts[i])
	}
	return verdicts, ctx.Err()
}

func (r *Runner) judged(v Verdict) {
	if r.Judged != nil {
		r.Judged(v)
	}
}

// open lists the verdicts that tests may still change.
func open(verdicts []Verdict, of func(Verdict) bool) (list []int) {
	for i, v := range verdicts {
		if !v.Noticed && !v.Unfit && of(v) {
			list = append(list, i)
		}
	}
	return list
}

// stage judges the listed sites by the tests of one package.
func (r *Runner) stage(ctx context.Context, overlay, pkg string, verdicts []Verdict, list []int) error {
	if len(list) == 0 || !slices.Contains(r.Tests, pkg) {
		return ctx.Err()
	}
	began := time.Now()
	if err := r.build(ctx, overlay, pkg, false); err != nil {
		return err
	}
	defer os.Remove(r.binary(pkg, false))
	if slices.ContainsFunc(list, func(i int) bool { return verdicts[i].Kind == Lock }) {
		if err := r.build(ctx, overlay, pkg, true); err != nil {
			return err
		}
		defer os.Remove(r.binary(pkg, true))
	}
	reach, err := r.reach(ctx, pkg, len(verdicts))
	if err != nil {
		return err
	}
	r.Log("%s: tests are built and traced after %s", pkg, time.Since(began).Round(time.Second))
	r.each(len(list), func(k int) {
		i := list[k]
		began := time.Now()
		v := &verdicts[i]
		r.judge(ctx, i+1, pkg, reach[i+1], v)
		v.Took += time.Since(began)
		switch {
		case ctx.Err() != nil:
		case v.Noticed:
			r.judged(*v)
		case pkg == v.Package:
			r.Log("missed by its own tests (%d reach it): %s", v.Reached, v.Site)
		}
	})
	return ctx.Err()
}

// imports lists the directories of the packages that the tests of a package are built of.
func (r *Runner) imports(ctx context.Context, pkg string) (map[string]bool, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-test", "-f", "{{.Dir}}", "./"+pkg)
	cmd.Dir = r.Root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("mutation: what %s imports: %w", pkg, err)
	}
	imported := map[string]bool{}
	for dir := range strings.FieldsSeq(string(out)) {
		if name, err := filepath.Rel(r.Root, dir); err == nil {
			imported[name] = true
		}
	}
	return imported, nil
}

// each calls do for 0 to n-1 on the workers.
func (r *Runner) each(n int, do func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range r.Workers {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

func (r *Runner) binary(pkg string, races bool) string {
	name := strings.ReplaceAll(pkg, "/", "__") + ".test"
	if races {
		name = "race__" + name
	}
	return filepath.Join(r.Dir, name)
}

// build builds the test binary of a package.
func (r *Runner) build(ctx context.Context, overlay, pkg string, races bool) error {
	args := []string{"test", "-c", "-vet=off", "-overlay", overlay, "-ldflags=-s -w", "-o", r.binary(pkg, races)}
	if races {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = r.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mutation: %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// reach runs each test of a package alone, and returns the tests that reach each mutant, the fastest first. A test that fails
// without a mutant is left out, and so are promises, which measure the machine.
func (r *Runner) reach(ctx context.Context, pkg string, sites int) ([][]test, error) {
	out, err := r.command(ctx, pkg, false, "-test.list", "^(Test|Fuzz)").Output()
	if err != nil {
		return nil, fmt.Errorf("mutation: the list of tests in %s: %w", pkg, err)
	}
	tests := slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool { return strings.HasPrefix(name, "TestPromise") })
	reach := make([][]test, sites+1)
	var mu sync.Mutex
	r.each(len(tests), func(i int) {
		t := test{name: tests[i]}
		trace := filepath.Join(r.Dir, fmt.Sprintf("trace%d", i))
		cmd := r.command(ctx, pkg, false, "-test.run", "^"+t.name+"$", "-test.timeout", "120s")
		cmd.Env = append(cmd.Environ(), envTrace+"="+trace)
		began := time.Now()
		_, err := cmd.CombinedOutput()
		t.took = time.Since(began)
		text, _ := os.ReadFile(trace) // there is none if no site was reached
		os.Remove(trace)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			r.Log("left out, because it fails without a mutant: %s %s", pkg, t.name)
			return
		}
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			if n, err := strconv.Atoi(lines.Text()); err == nil && n <= sites {
				reach[n] = append(reach[n], t)
			}
		}
	})
	for _, list := range reach {
		slices.SortFunc(list, func(a, b test) int { return cmp.Or(cmp.Compare(a.took, b.took), strings.Compare(a.name, b.name)) })
	}
	return reach, ctx.Err()
}

func (r *Runner) command(ctx context.Context, pkg string, races bool, args ...string) *exec.Cmd {
	limit := strconv.Itoa(addressSpace)
	if races {
		limit = "unlimited"
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", `ulimit -v "$0" && exec "$@"`, limit, r.binary(pkg, races)}, args...)...)
	cmd.Dir = filepath.Join(r.Root, pkg)
	return cmd
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// judge runs the tests of a package that reach a mutant. A run has twice the tests of the run before it: the fast tests notice most
// mutants, and a mutant that hangs has the short limit of few tests.
func (r *Runner) judge(ctx context.Context, n int, pkg string, tests []test, v *Verdict) {
	v.Reached += len(tests)
	if pkg != v.Package {
		tests = tests[:min(len(tests), most)]
	}
	for size := 4; len(tests) > 0; size *= 2 {
		run := tests[:min(size, len(tests))]
		tests = tests[len(run):]
		var names []string
		limit := hang
		for _, t := range run {
			names = append(names, t.name)
			limit += 10 * t.took
		}
		cmd := r.command(ctx, pkg, v.Kind == Lock, "-test.failfast", "-test.run", "^("+strings.Join(names, "|")+")$", "-test.timeout", limit.String())
		cmd.Env = append(cmd.Environ(), envMutant+"="+strconv.Itoa(n))
		out, err := cmd.CombinedOutput()
		if _, ran := errors.AsType[*exec.ExitError](err); ran && ctx.Err() == nil {
			v.Noticed, v.By = true, pkg
			if m := failedTest.FindSubmatch(out); m != nil {
				v.By += " " + string(m[1])
			}
			return
		}
	}
}
