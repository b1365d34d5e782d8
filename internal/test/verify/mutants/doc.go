// Package mutants proves that the tests notice when a rule is broken. A mutant is a
// patch of the source, patches/NAME.patch, which removes one rule; its witnesses are the
// tests that must fail then. The product itself has no switch for any of them.
//
// The sources of the repository are never changed: a patch is applied to copies in a
// temporary directory, and `go test -overlay` compiles the copies in place of the
// originals. A witness with real brokers has them built with the same overlay
// (internal/test/testkit/clusters).
//
// # The patches
//
// The first lines describe the patch, the rest is a unified diff against the root of
// the repository, as `git diff` writes it:
//
//	# rule: FO-4: a follower acknowledges what is durable.
//	# witnesses: model, script, internal/test/verify/powercut TestAllAtOnce, process internal/test/verify/chaos TestDisksFailUnderTwo
//	# equivalent: why a removal that breaks no promise is harmless
//
// rule is one sentence, with the rule's number in coordinator/replica/DESIGN.md if it
// has one. The first witness is the fastest; `mutants fast` asks that one alone.
//
//	model               the search of every interleaving (internal/test/verify/model)
//	sim                 simulated clusters under faults (internal/test/verify/sim)
//	script              the scripts in coordinator/replica/testdata
//	PACKAGE Test        a test of the package
//	process PACKAGE Test a test that builds and starts brokers; it may have three tries
//
// A mutant with a line "equivalent" is argued to break no promise. The model must then
// find nothing, and the other witnesses, which look at the behaviour, must notice it.
//
// # Invariants
//
//  1. Every patch applies at exactly one place, and its result compiles (Check).
//  2. A witness notices by a failed check. Code that does not compile, a panic of the
//     test and a test that does not end are no notice.
//  3. A witness passes without the mutant: as the same test, or for the model as the
//     same search, as far and a little further.
package mutants
