// Package cli is what the commands of nsqctl share: the target with the addresses and security settings of the
// brokers, profiles, the forms of output, exit codes, the line of progress, confirmations and the
// completion of names.
//
// It has no command of its own but "profile", sends no request that changes something, and imports no other
// package of commands: those import it, and export a constructor for each command.
//
// # Invariants
//
//  1. A flag is stronger than its environment variable, which is stronger than the profile. No profile
//     keeps a secret.
//  2. A token goes to the addresses of the target, and follows no redirection.
//  3. Every command obeys --output: with json or yaml, one that prints nothing answers {"result": "done"}.
//  4. Each kind of failure has its exit code (ExitFailed and the constants beside it).
//
// # Goroutines
//
// The package starts none. A Reporter may be called by any goroutine; everything else belongs to the one that runs
// the command.
package cli
