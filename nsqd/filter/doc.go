// Package filter decides by the headers of a message whether a channel delivers it. A Selection is
// that decision: the message is not for another channel alone, and the channel's Filter accepts it. A Filter is
// one condition on one header. It is data with a pure function: it reads no log, delivers nothing
// and has no state.
//
// The text of a filter is the form that operators write and that the channel's key keeps:
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
//  1. A message without the header, or with a value that is no string or is longer than MaxValue,
//     does not meet a condition. It meets the opposite.
//  2. The cost of Match is bounded: the length of the text, the size of a regular expression's
//     program, the number of wildcards and the length of a value are. RE2 has no backtracking.
//  3. String of a parsed filter parses to an equal filter.
//
// # Goroutines
//
// A Filter does not change after Parse. Any goroutine may use it.
package filter
