// Package config is everything an operator can set: one Options value, read
// from the command line, the environment (NSQD_…), a TOML file and defaults, in
// this order of precedence.
//
// It opens nothing but the configuration file, resolves no names, and knows no
// other package of Lockstep: whoever needs a setting is handed its value.
//
// Invariants:
//
//  1. Every setting is one field of Options; flag, environment variable, file
//     key, default, limits and help all come from that field's tags.
//  2. Every flag of a stock nsqd is accepted with its default and in its
//     spellings. Those that mean nothing here say so in their help (NoOps).
//  3. All faults are reported at once. A value that was not understood is never
//     replaced by a default.
package config
