// Package admission stores the invitations of brokers that may join a running cluster with embedded etcd, in the cluster's
// metadata.
//
// An invitation is the name of a broker and an expiry time. It has no secret: the broker proves its name with a certificate of
// the cluster's authority, at ports that check it (rpc/peertls). Neither an invitation nor a certificate is enough without the
// other. A broker that has joined removes its invitation. It is a member then, and could write any invitation itself.
//
// Invariants:
//
//  1. Before the first answer of the metadata no broker is invited.
//  2. An invitation that has expired, or cannot be read, invites nobody, even if its key still exists.
//  3. A broker that joined and was removed again is not invited.
//
// The package starts no goroutine: the caller runs Registry.Watch.
package admission
