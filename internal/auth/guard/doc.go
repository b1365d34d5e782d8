// Package guard authorizes the requests of clients: it finds the identity of a client, checks its rights, paces the questions to
// the auth service, refuses requests that pages of other origins cause, and records every administrative action.
//
// The decisions are elsewhere: internal/auth/access decides for the users of the cluster, an auth service (internal/auth/authd)
// for its own clients. The package has no routes and no commands: internal/frontend/httpapi and internal/frontend/tcp name the
// right that each of theirs requires.
//
// # Order of a decision
//
//  1. While neither users nor an auth service nor a bootstrap token exist, all is allowed.
//  2. Every client has the rights of the user "anonymous".
//  3. A user of the cluster, by token or by the name in its verified certificate, may what its rights say.
//  4. Any other secret is asked of the auth service, if there is one. Its answer has publish and subscribe alone: it never opens
//     an administrative door.
//
// # Invariants
//
//  1. A secret stands in no log line, no error and no audit entry.
//  2. A valid token of a user is never refused, nor delayed, because of other logins. Questions to the auth service about unknown
//     secrets wait in a line for each address.
//  3. Every map has a limit.
//  4. The cookie of a browser stands for one sign-in at this broker, and opens at most the credentials of that sign-in do now: it
//     ends with them, at a sign-out, and after 12 hours. It is valid for the network of the sign-in alone.
package guard
