// Package cli contains what the commands of nsqctl share: the target with the addresses and security settings of the
// brokers, profiles, output as tables and JSON, exit codes, progress, state files, confirmations and the completion of
// names.
//
// Its only command is "profile". It sends no request that changes something, and imports no other package of commands:
// they import it, and export their commands.
//
// # Invariants
//
//  1. A flag overrides its environment variable, which overrides the profile. No profile has a secret.
//  2. A token goes to the addresses of the target, and follows no redirection.
//  3. Every command obeys --output: with json or yaml, a command without output prints {"result": "done"}.
//  4. Each kind of failure has its exit code (ExitFailed and the constants next to it).
//
// # Goroutines
//
// The package starts none. A Reporter may be called by any goroutine; everything else belongs to the command's
// goroutine.
package cli
