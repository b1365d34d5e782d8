// Package config reads the settings of a broker: one Options value, read from the command line, the environment
// (NSQD_…), a TOML file and defaults, in this order of precedence.
//
// It opens no file but the configuration file, resolves no names, and imports no other package of Lockstep: each
// package receives the values that it needs.
//
// # Invariants
//
//  1. Every setting is one field of Options; flag, environment variable, file key,
//     default, limits and help all come from that field's tags.
//  2. Every flag of a stock nsqd is accepted, with its default and in its spellings. The
//     help of a flag without effect says so (NoOps).
//  3. All faults are reported at once. A default never replaces a value that cannot be parsed.
package config
