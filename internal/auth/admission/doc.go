// Package admission keeps the invitations of brokers that may join a running cluster with embedded etcd, in the cluster's
// metadata.
//
// An invitation is the name of a broker and the time of its end. It has no secret: the broker proves its name with a certificate
// of the cluster's authority, at ports that check it (rpc/peertls). An invitation alone opens nothing, and a certificate alone
// does not either. The broker that was invited removes its invitation when it has joined. It is a member then, and could write
// any invitation itself.
//
// # Invariants
//
//  1. Before the first answer of the metadata no broker is invited.
//  2. An invitation that has ended, or cannot be read, invites nobody, whether or not its key is still there.
//  3. A broker that has joined and was removed again is not invited.
//
// # Goroutines
//
// None: the caller runs Registry.Watch.
package admission
