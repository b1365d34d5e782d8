// Package lint holds the rules of this repository that no common linter knows,
// as tests: imports go downwards only, the replication protocol is pure, every
// package says what it is, and the constructs we do without stay out.
//
// It reads source, never runs it, and has no code of its own. A rule that turns
// out to be wrong is changed here, with its reason, in the commit that needs
// it; there are no exemptions in the source files.
package lint
