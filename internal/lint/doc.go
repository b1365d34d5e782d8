// Package lint holds the rules of this repository that common linters do not cover, as tests: imports go downwards
// only, the replication protocol is pure, every package has a description, comments name their subjects, and forbidden
// constructs stay out.
//
// It reads the sources, never runs them, and has no code of its own. A rule that turns out to be wrong is changed here, with its
// reason, in the commit that needs it; the source files have no exemptions.
package lint
