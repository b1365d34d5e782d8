// Command mutants removes rules from the code, one at a time, and has their witnesses
// judge the rest. Package internal/test/verify/mutants defines a mutant.
//
//	mutants list [NAME...]                  names, rules and witnesses
//	mutants check                           every patch applies and compiles
//	mutants refresh                         patches follow code that was moved
//	mutants run [flags] [NAME...]           witnesses of all mutants, or of these
//	mutants fast                            mutants of the protocol, the fastest witness of each
//	mutants score [flags] [NAME...]         run, with every witness also without the mutant; a table
//	mutants overlay NAME DIR                writes the file for `go test -overlay` into DIR
//	mutants new -rule R -witnesses W NAME   makes a patch of the changes in the working tree
//
// It works on the repository that the present directory belongs to. The exit code is 1 if
// a mutant is not noticed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/verify/mutants"
)

const (
	// fastHarmless and scoreHarmless bound the model's search for mutants that it is not
	// expected to find.
	fastHarmless  = 50_000
	scoreHarmless = 8_000_000
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", strings.TrimPrefix(err.Error(), "mutants: "))
		os.Exit(1)
	}
}

var errUsage = errors.New("list, check, refresh, run, fast, score, overlay or new; go doc ./internal/test/verify/mutants/cmd/mutants says more")

func command(args []string) error {
	root, err := env.Repository()
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return errUsage
	}
	switch verb, args := args[0], args[1:]; verb {
	case "list":
		return list(root, args)
	case "check":
		return check(root)
	case "refresh":
		return refresh(root)
	case "run", "fast", "score":
		return run(root, verb, args)
	case "overlay":
		return overlay(root, args)
	case "new":
		return create(root, args)
	}
	return errUsage
}

func list(root string, names []string) error {
	all, err := mutants.Load(root, names...)
	for _, m := range all {
		fmt.Printf("%s\n\trule: %s\n", m.Name, m.Rule)
		for _, w := range m.Witnesses {
			fmt.Printf("\t%s\n", w)
		}
		if m.Equivalent != "" {
			fmt.Printf("\tharmless: %s\n", m.Equivalent)
		}
	}
	return err
}

func check(root string) error {
	all, err := mutants.Load(root)
	if err != nil {
		return err
	}
	if err := mutants.Check(root, all); err != nil {
		return err
	}
	fmt.Printf("%d mutants apply and compile\n", len(all))
	return nil
}

func refresh(root string) error {
	all, err := mutants.Load(root)
	if err != nil {
		return err
	}
	names, err := mutants.Refresh(root, all)
	for _, name := range names {
		fmt.Println(name, "has moved")
	}
	return err
}

func run(root, verb string, args []string) error {
	flags := flag.NewFlagSet(verb, flag.ExitOnError)
	word := flags.String("witness", "", "only witnesses of this kind (model, sim, script, test, process), package or name")
	jobs := flags.Int("jobs", runtime.GOMAXPROCS(0), "witnesses at a time; those with brokers run alone")
	table := flags.String("table", "", "write the table of the score into this file, too")
	names, err := parse(flags, args)
	if err != nil {
		return err
	}
	all, err := mutants.Load(root, names...)
	if err != nil {
		return err
	}
	tasks := mutants.Tasks(all, *word)
	r := mutants.Runner{Root: root, HarmlessStates: fastHarmless}
	switch verb {
	case "fast":
		tasks = mutants.Fast(all)
	case "score":
		r.Control, r.HarmlessStates = true, scoreHarmless
	}
	if len(tasks) == 0 {
		return errors.New("no such witness")
	}
	if r.Dir, err = os.MkdirTemp("", "mutants-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.Dir)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	began := time.Now()
	results := r.RunAll(ctx, tasks, *jobs, report)
	if verb == "score" {
		fmt.Print("\n", mutants.Score(results))
	}
	if *table != "" {
		if err := os.WriteFile(*table, []byte(mutants.Score(results)), 0o644); err != nil {
			return err
		}
	}
	fmt.Println(mutants.Summary(results, time.Since(began)))
	for _, result := range results {
		if !result.OK() {
			return errors.New("not every mutant is noticed")
		}
	}
	return nil
}

// parse reads flags that stand before and behind names.
func parse(flags *flag.FlagSet, args []string) (names []string, err error) {
	for err = flags.Parse(args); err == nil && flags.NArg() > 0; err = flags.Parse(flags.Args()[1:]) {
		names = append(names, flags.Arg(0))
	}
	return names, err
}

func report(r mutants.Result) {
	fmt.Printf("%-8s %-28s %-8s %s (%.1f s)\n", r.Verdict, r.Mutant.Name, r.Witness, r.Said, r.Took.Seconds())
	if !r.OK() {
		fmt.Println(lastLines(r.Output))
	}
}

// lastLines is the end of the output of a test that did not judge as it should.
func lastLines(output string) string {
	const enough = 2000
	return output[max(0, len(output)-enough):]
}

func overlay(root string, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	all, err := mutants.Load(root, args[0])
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(args[1])
	if err != nil {
		return err
	}
	file, err := all[0].Overlay(root, dir)
	fmt.Println(file)
	return err
}

func create(root string, args []string) error {
	flags := flag.NewFlagSet("new", flag.ExitOnError)
	rule := flags.String("rule", "", "which rule the change breaks: one sentence, with its number if it has one")
	witnesses := flags.String("witnesses", "", "which tests must fail, the fastest first: model, sim, script, PACKAGE Test, process PACKAGE Test")
	names, err := parse(flags, args)
	if err != nil {
		return err
	}
	if len(names) != 1 {
		return errUsage
	}
	file, err := mutants.New(root, names[0], *rule, *witnesses)
	if file != "" {
		fmt.Println(file)
	}
	return err
}
