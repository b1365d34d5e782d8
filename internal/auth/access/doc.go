// Package access decides what an identity may do, and stores the users and their rights in the cluster's metadata.
//
// The decision (Policy.Allow) is pure: a function of an immutable policy, an identity, a right and a topic. Registry
// has the current policy: it watches the users' keys, and writes them for nsqctl. The package has no sockets, no HTTP
// and no auth service; internal/auth/guard consults it for every port.
//
// # Identities
//
//	anonymous   a client without credentials; it has the rights of the user "anonymous"
//	user        a named user, identified by its token or by the name in its certificate
//	peer        another broker of the cluster, only on the port for brokers; it may do everything
//
// # Patterns
//
// A right on topics is granted for a pattern. `*` matches any number of characters, including none, and `?` exactly one; every
// other character matches itself. The whole name must match, with its suffix: "logs.*" matches "logs.a#ephemeral", "logs" does
// not match "logs.a". Patterns are case-sensitive.
//
// # Tokens
//
// A token is <user>.<43 characters>: 256 random bits in base64url. The metadata has its SHA-256 hash. A slow hash would
// protect nothing, because random bits cannot be guessed, and would let unauthenticated clients use up the brokers'
// CPU. So every broker recognises a valid token at once, regardless of other clients.
//
// # The first administrator
//
// While no user administers the cluster, only the secret in a broker's data path (FirstFile) or the token of
// --bootstrap-admin-token-file can create one. No address is trusted for it: a proxy on the broker's machine has a
// loopback address too.
//
// # Invariants
//
//  1. Before the first answer of the metadata there is no policy, and nothing is allowed.
//  2. A user that cannot be read has no rights, and still switches enforcement on.
//  3. A token is valid only while the user has the token id that it was issued with: a rotation or a deletion ends the sessions
//     of the old token.
//  4. The rights on topics do not imply each other. The right to administer the cluster implies all rights.
//  5. While users exist, at least one of them administers the cluster.
//
// The package starts no goroutine: the caller runs Registry.Watch.
package access
