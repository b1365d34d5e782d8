// Package mutation measures how many random changes of the code the tests notice. Package mutants asks whether each rule has
// its test; this one asks what no rule names.
//
// A seed draws sites of the product's source (sites.go): a condition is negated, a bound is moved, a conjunction becomes a
// disjunction, a statement is dropped, an error is ignored, a lock is not taken, two calls are swapped. All of them are
// compiled into the test binaries at once, by `go test -overlay`, each behind a condition on the environment, so that a mutant
// costs a run and no build. Each package is judged by its own tests first; what they miss is judged by the tests of one
// other package after another. A first run of each test notes the sites that it reaches. A mutant is judged by the tests that
// reach it, the fastest first: it is noticed if one of them fails or does not end. Locks are judged under the race detector.
//
// Calls of loggers are no sites. A site that no test reaches counts as missed, and so does a change without an effect: the
// score is a lower bound. The tests are those of the packages that are measured; real brokers judge nothing here. Promises,
// which measure the machine, judge nothing either. A property test that fails leaves its case in testdata/rapid: remove it.
package mutation
