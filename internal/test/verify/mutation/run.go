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
	Log     func(format string, args ...any)
}

// Verdict is what the tests said about a site.
type Verdict struct {
	Site
	Noticed   bool
	By        string // the test, if it is noticed
	Reached   int    // tests that reach the site
	Unfit     bool   // it does not compile
	Took      time.Duration
	WithRaces bool
}

// test is one test function.
type test struct {
	pkg, name string
	took      time.Duration
}

const (
	// hang is how long the tests of a package may take, in addition to ten times the time that they took without a
	// mutant.
	hang = 20 * time.Second
	// most is how many tests judge a mutant.
	most = 60
)

// Run judges the sites.
func (r *Runner) Run(ctx context.Context, sites []Site) ([]Verdict, error) {
	file, without, err := compile(ctx, r.Root, r.Dir, sites)
	if err != nil {
		return nil, err
	}
	r.Log("%d sites, %d of them do not compile; building the tests of %d packages", len(sites), len(without), len(r.Tests))
	if err := r.build(ctx, file, sites); err != nil {
		return nil, err
	}
	reach, err := r.reach(ctx, len(sites))
	if err != nil {
		return nil, err
	}
	verdicts := make([]Verdict, len(sites))
	r.each(len(sites), func(i int) {
		v := Verdict{Site: sites[i], Unfit: without[i+1]}
		if !v.Unfit {
			began := time.Now()
			r.judge(ctx, i+1, reach[i+1], &v)
			v.Took = time.Since(began)
		}
		verdicts[i] = v
		if !v.Noticed && !v.Unfit {
			r.Log("missed (%d tests reach it): %s", v.Reached, v.Site)
		}
	})
	return verdicts, ctx.Err()
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

// build builds the test binaries, and those of packages with a lock among the sites with the race detector, too.
func (r *Runner) build(ctx context.Context, overlay string, sites []Site) error {
	buildOne := func(pkg string, races bool) error {
		args := []string{"test", "-c", "-overlay", overlay, "-o", r.binary(pkg, races)}
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
	for _, pkg := range r.Tests {
		if err := buildOne(pkg, false); err != nil {
			return err
		}
		if slices.ContainsFunc(sites, func(s Site) bool { return s.Kind == Lock && s.Package == pkg }) {
			if err := buildOne(pkg, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// reach runs each test alone, and returns the tests that reach each mutant, the fastest first. A test that fails without
// a mutant is left out.
func (r *Runner) reach(ctx context.Context, sites int) ([][]test, error) {
	var tests []test
	for _, pkg := range r.Tests {
		out, err := r.command(ctx, pkg, false, "-test.list", "^(Test|Fuzz)").Output()
		if err != nil {
			return nil, fmt.Errorf("mutation: the list of tests in %s: %w", pkg, err)
		}
		for name := range strings.FieldsSeq(string(out)) {
			tests = append(tests, test{pkg: pkg, name: name})
		}
	}
	reach := make([][]test, sites+1)
	var mu sync.Mutex
	failed := 0
	r.each(len(tests), func(i int) {
		t := tests[i]
		trace := filepath.Join(r.Dir, fmt.Sprintf("trace%d", i))
		cmd := r.command(ctx, t.pkg, false, "-test.run", "^"+t.name+"$", "-test.timeout", "120s")
		cmd.Env = append(cmd.Environ(), envTrace+"="+trace)
		began := time.Now()
		_, err := cmd.CombinedOutput()
		t.took = time.Since(began)
		text, _ := os.ReadFile(trace) // there is none if no site was reached
		os.Remove(trace)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed++
			r.Log("left out, because it fails without a mutant: %s %s", t.pkg, t.name)
			return
		}
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			if n, err := strconv.Atoi(lines.Text()); err == nil && n <= sites {
				reach[n] = append(reach[n], t)
			}
		}
	})
	r.Log("%d tests, %d left out", len(tests), failed)
	for _, list := range reach {
		slices.SortFunc(list, func(a, b test) int { return cmp.Or(cmp.Compare(a.took, b.took), strings.Compare(a.name, b.name)) })
	}
	return reach, ctx.Err()
}

func (r *Runner) command(ctx context.Context, pkg string, races bool, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.binary(pkg, races), args...)
	cmd.Dir = filepath.Join(r.Root, pkg)
	return cmd
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// judge runs the tests that reach a mutant: those of its package first, then the others, package by package.
func (r *Runner) judge(ctx context.Context, n int, list []test, v *Verdict) {
	v.Reached, v.WithRaces = len(list), v.Kind == Lock
	own, others := map[string][]test{}, map[string][]test{}
	var order []string
	for _, t := range list {
		to := others
		if t.pkg == v.Package {
			to = own
		} else if v.Kind == Lock {
			continue
		}
		if len(to[t.pkg]) < most {
			to[t.pkg] = append(to[t.pkg], t)
			if t.pkg != v.Package && !slices.Contains(order, t.pkg) {
				order = append(order, t.pkg)
			}
		}
	}
	for _, pkg := range append([]string{v.Package}, order...) {
		tests := append(own[pkg], others[pkg]...)
		if len(tests) == 0 {
			continue
		}
		var names []string
		limit := hang
		for _, t := range tests {
			names = append(names, t.name)
			limit += 10 * t.took
		}
		cmd := r.command(ctx, pkg, v.WithRaces, "-test.failfast", "-test.run", "^("+strings.Join(names, "|")+")$", "-test.timeout", limit.String())
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
