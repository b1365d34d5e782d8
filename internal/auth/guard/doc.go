// Package guard authorizes the requests of clients: it identifies the client, checks its rights, paces the queries to the auth
// service, refuses requests caused by pages of other origins, and audits every administrative action.
//
// The decisions are made elsewhere: internal/auth/access decides for the users of the cluster, an auth service
// (internal/auth/authd) for its own clients. The package has no routes and no commands: internal/frontend/httpapi and
// internal/frontend/tcp name the right that each of theirs requires.
//
// # Order of a decision
//
//  1. Without users, auth service and bootstrap token everything is allowed.
//  2. Every client has the rights of the user "anonymous".
//  3. A user of the cluster, by token or by the name in its verified certificate, has its own rights too.
//  4. Any other secret is sent to the auth service, if there is one. Its answer grants only publish and subscribe, never an
//     administrative right.
//
// # Invariants
//
//  1. No log line, error or audit entry contains a secret.
//  2. A valid token of a user is never refused, nor delayed, because of other logins. Queries about unknown secrets wait in a
//     bounded line for each address.
//  3. Every map has a limit.
//  4. A browser's cookie represents one sign-in at this broker, and grants at most what the credentials of that sign-in
//     grant now: it ends with them, at a sign-out, and after 12 hours. It is valid only for the network of the sign-in.
package guard
