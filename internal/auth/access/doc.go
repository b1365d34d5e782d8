// Package access decides what an identity may do, and keeps the users and their rights in the cluster's metadata.
//
// The decision (Policy.Allow) is pure: an immutable policy, an identity, a right and a topic give yes or no. Registry keeps the
// present policy: it watches the keys of the users, and writes them for nsqctl. The package knows no socket, no HTTP and no auth
// service; internal/auth/guard asks it at each door.
//
// # Identities
//
//	anonymous   a client without credentials; its rights are those of the user "anonymous"
//	user        a named user, known by its token or by the name in its certificate
//	peer        another broker of the cluster, on the port for brokers alone; it may do everything
//
// # Patterns
//
// A right on topics is granted to a pattern. `*` stands for any number of characters, none included, `?` for exactly one; every
// other character stands for itself. The whole name must match, with its suffix: "logs.*" matches "logs.a#ephemeral", "logs" does
// not match "logs.a". Case counts.
//
// # Tokens
//
// A token is <user>.<43 characters>: 256 random bits in base64url. The metadata keeps a SHA-256 hash of it. A slow hash would
// protect nothing, because random bits cannot be guessed, and strangers could occupy the brokers with it. So a valid token is
// recognised at once, by every broker, whatever other clients do.
//
// # The first administrator
//
// While no user administers the cluster, only the secret in a broker's data path makes one (FirstFile), or the token of
// --bootstrap-admin-token-file. No address is trusted for it: a proxy on the broker's machine has a loopback address too.
//
// # Invariants
//
//  1. Before the first answer of the metadata there is no policy, and nothing is allowed.
//  2. A user that cannot be read has no rights, and still switches enforcement on.
//  3. A token holds only as long as the user has the token id that it was issued with: a rotation or a deletion ends the sessions
//     of the old token.
//  4. The rights on topics do not imply each other. The right to administer the cluster implies all rights.
//  5. While users exist, at least one of them administers the cluster.
//
// # Goroutines
//
// None: the caller runs Registry.Watch.
package access
