package mutants

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Task is a mutant with a witness that is to judge it.
type Task struct {
	Mutant  *Mutant
	Witness Witness
}

// Tasks lists the mutants with all their witnesses, or with those that a word matches.
func Tasks(mutants []Mutant, word string) (tasks []Task) {
	for i := range mutants {
		for _, w := range mutants[i].Witnesses {
			if word == "" || w.Matches(word) {
				tasks = append(tasks, Task{&mutants[i], w})
			}
		}
	}
	return tasks
}

// Fast lists the mutants of the protocol, each with its first witness.
func Fast(mutants []Mutant) (tasks []Task) {
	for i := range mutants {
		if m := &mutants[i]; m.Protocol() {
			tasks = append(tasks, Task{m, m.Witnesses[0]})
		}
	}
	return tasks
}

// RunAll runs tasks, jobs of them at a time, but those with brokers one after the other at
// the end. It reports each result as it comes, and returns all in the order of the tasks.
func (r *Runner) RunAll(ctx context.Context, tasks []Task, jobs int, report func(Result)) []Result {
	results := make([]Result, len(tasks))
	var mu sync.Mutex
	run := func(i int) {
		result := r.Run(ctx, tasks[i].Mutant, tasks[i].Witness)
		mu.Lock()
		defer mu.Unlock()
		results[i] = result
		report(result)
	}
	next := make(chan int)
	var workers sync.WaitGroup
	for range jobs {
		workers.Go(func() {
			for i := range next {
				run(i)
			}
		})
	}
	for i, t := range tasks {
		if t.Witness.Kind != KindProcess {
			next <- i
		}
	}
	close(next)
	workers.Wait()
	for i, t := range tasks {
		if t.Witness.Kind == KindProcess {
			run(i)
		}
	}
	return results
}

// Score is the table of a run, in Markdown.
func Score(results []Result) string {
	results = slices.Clone(results)
	slices.SortStableFunc(results, func(a, b Result) int { return cmp.Compare(a.Mutant.Name, b.Mutant.Name) })
	var b strings.Builder
	b.WriteString("| mutant | rule | witness | what it said | seconds |\n|---|---|---|---|---|\n")
	last := ""
	for _, r := range results {
		name, rule := "", ""
		if r.Mutant.Name != last {
			name, rule = "`"+r.Mutant.Name+"`", r.Mutant.Rule
		}
		last = r.Mutant.Name
		said := r.Said
		switch r.Verdict {
		case Harmless:
			said = "as argued, " + said + ": " + r.Mutant.Equivalent
		case Missed, Unfit:
			said = r.Verdict.String() + ": " + said
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.1f |\n", name, cell(rule), r.Witness, cell(said), r.Took.Seconds())
	}
	return b.String()
}

func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

// Summary counts the verdicts of a run.
func Summary(results []Result, took time.Duration) string {
	var counts [Unfit + 1]int
	for _, r := range results {
		counts[r.Verdict]++
	}
	return fmt.Sprintf("%d runs: %d noticed, %d harmless as argued, %d missed, %d unfit; %.0f s",
		len(results), counts[Noticed], counts[Harmless], counts[Missed], counts[Unfit], took.Seconds())
}
