// Package filter decides by the headers of a message whether a channel delivers it. A Selection makes that decision:
// the message is not reserved for another channel, and the channel's Filter accepts it. A Filter is one condition on
// one header, a pure function without state.
//
// The text of a filter, as operators write it and the channel's key stores it:
//
//	tag=blue             the tag ("##client_dispatch_tag") equals blue
//	header:region=eu     the header region equals eu
//	header:region^=eu-   it begins with eu-
//	header:region*=eu-*  it matches a glob: * is any run of characters, ? is one
//	header:region~=^eu   it matches a regular expression (RE2) somewhere
//	!header:region=eu    the opposite of each line above
//
// # Invariants
//
//  1. A message without the header, or with a value that is not a string or is longer than maxValue, does not meet a
//     condition, but meets its negation.
//  2. The cost of Match is bounded: the length of the text, the size of a regular expression's
//     program, the number of wildcards and the length of a value are. RE2 has no backtracking.
//  3. String of a parsed filter parses to an equal filter.
//
// # Goroutines
//
// A Filter does not change after Parse. Any goroutine may use it.
package filter
