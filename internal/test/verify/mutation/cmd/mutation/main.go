// Command mutation measures how many random changes of the code the tests notice:
//
//	mutation -n 1000 -seed 1 [-workers 2] [-own] [-results FILE] [PART...]
//
// The changes are drawn in the packages that the product's promises rest on. PART restricts which of the drawn changes are judged: a
// directory with all below it, or the beginning of a change as -list prints it, such as rpc/conn.go:12. Parts of one draw add up in
// FILE: changes that it has are not judged again. With -own, the tests of a package judge its changes alone; those that they miss do not
// count as judged in FILE. The command prints the changes that no test notices, and the score of each package.
// Package internal/test/verify/mutation explains the measure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/verify/mutation"
)

// measured are the packages in which changes are drawn, and whose tests judge.
var measured = []string{"coordinator", "nsqd", "commitlog", "rpc", "internal/frontend/tcp", "internal/frontend/httpapi"}

func main() {
	seed := flag.Uint64("seed", 1, "which changes are drawn")
	n := flag.Int("n", 1000, "how many changes")
	workers := flag.Int("workers", 2, "tests that run at once")
	results := flag.String("results", "", "a file that collects verdicts: those of earlier runs are kept")
	own := flag.Bool("own", false, "only the tests of its package judge a change")
	list := flag.Bool("list", false, "print the changes, and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *seed, *n, *workers, *own, *results, *list, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, seed uint64, n, workers int, own bool, results string, list bool, parts []string) error {
	if n < 1 || workers < 1 {
		return errors.New("-n and -workers are at least 1")
	}
	root, err := env.Repository()
	if err != nil {
		return err
	}
	packages, tested, err := find(root, measured)
	if err != nil {
		return err
	}
	all, err := mutation.Sites(root, packages)
	if err != nil {
		return err
	}
	drawn := mutation.Draw(all, seed, n)
	fmt.Printf("seed %d: %d of %d sites in %d packages\n", seed, len(drawn), len(all), len(packages))
	sites := slices.DeleteFunc(slices.Clone(drawn), func(s mutation.Site) bool { return !within(s, parts) })
	if list {
		for _, s := range sites {
			fmt.Println(s)
		}
		return nil
	}
	known, err := mutation.ReadVerdicts(results, drawn)
	if err != nil {
		return err
	}
	sites = slices.DeleteFunc(sites, func(s mutation.Site) bool {
		return slices.ContainsFunc(known, func(v mutation.Verdict) bool { return v.String() == s.String() })
	})
	if len(sites) > 0 {
		verdicts, err := judge(ctx, root, tested, workers, own, results, sites)
		if err != nil {
			return err
		}
		known = append(known, verdicts...)
	}
	table(known)
	return nil
}

func judge(ctx context.Context, root string, tested []string, workers int, own bool, results string, sites []mutation.Site) ([]mutation.Verdict, error) {
	dir, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &mutation.Runner{Root: root, Dir: dir, Tests: tested, Workers: workers, Own: own, Log: func(format string, args ...any) { fmt.Printf(format+"\n", args...) }}
	if results != "" {
		f, err := os.OpenFile(results, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r.Judged = func(v mutation.Verdict) { f.WriteString(v.Line()) }
	}
	return r.Run(ctx, sites)
}

// within reports whether a site is in one of the parts; without parts all are.
func within(s mutation.Site, parts []string) bool {
	return len(parts) == 0 || slices.ContainsFunc(parts, func(p string) bool {
		p = strings.TrimSuffix(p, "/")
		return s.Package == p || strings.HasPrefix(s.Package, p+"/") || strings.HasPrefix(s.String(), p+":")
	})
}

// find lists the packages below the directories, and those of them that have tests.
func find(root string, dirs []string) (packages, tested []string, err error) {
	for _, d := range dirs {
		err := filepath.WalkDir(filepath.Join(root, d), func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case !e.IsDir():
				return nil
			case e.Name() == "testdata" || strings.HasSuffix(e.Name(), "test"):
				return filepath.SkipDir
			}
			files, err := filepath.Glob(filepath.Join(path, "*.go"))
			if err != nil || len(files) == 0 {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			isTest := func(f string) bool { return strings.HasSuffix(f, "_test.go") }
			if !slices.ContainsFunc(files, func(f string) bool { return !isTest(f) }) {
				return nil
			}
			packages = append(packages, name)
			if slices.ContainsFunc(files, isTest) {
				tested = append(tested, name)
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return packages, tested, nil
}

// table prints the score of each package and of each kind.
func table(verdicts []mutation.Verdict) {
	type sum struct{ noticed, judged, unreached int }
	byPackage, byKind := map[string]sum{}, map[string]sum{}
	var all sum
	for _, v := range verdicts {
		if v.Unfit {
			continue
		}
		add := func(s sum) sum {
			s.judged++
			if v.Noticed {
				s.noticed++
			}
			if v.Reached == 0 {
				s.unreached++
			}
			return s
		}
		all = add(all)
		byPackage[v.Package] = add(byPackage[v.Package])
		byKind[string(v.Kind)] = add(byKind[string(v.Kind)])
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "\tnoticed\tof\tnot reached\tscore")
	row := func(name string, s sum) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.0f %%\n", name, s.noticed, s.judged, s.unreached, 100*float64(s.noticed)/float64(max(s.judged, 1)))
	}
	for _, m := range []map[string]sum{byPackage, byKind, {"all": all}} {
		names := []string{}
		for name := range m {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			row(name, m[name])
		}
	}
}
