// Package peertls protects the ports of a broker that only other brokers may use: RPC, and the client and peer ports of
// the embedded etcd. It provides the broker's certificate, which can be renewed while in use (Identity), the check that
// a certificate belongs to a broker (Names), a limit on the connections of a port (Gate), and a log that a flood cannot
// fill (Refusals).
//
// It accepts no connection and speaks no protocol; rpc and coordinator/metadata/etcd do. It does not check the cluster
// token: without TLS every connection that the port's own protocol accepts counts as a broker's.
//
// # Invariants
//
//  1. A certificate without a broker's name, or that is not valid for both ends of a connection, is
//     refused, even if a trusted authority has signed it.
//  2. Each handshake uses the content that the files had at most a quarter of a second earlier. If changed files cannot
//     be used, the earlier ones stay in use, and one line is logged.
//  3. A port never has more connections than the limits of its Gate. A connection that has not been
//     admitted never displaces an admitted one.
//  4. Refusals logs at most five lines a second, and the number of omitted lines, by a timer.
//
// The package has no goroutines.
package peertls
