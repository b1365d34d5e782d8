// Package certcmd has the commands of nsqctl that issue certificates: an authority, and the certificates of brokers and of
// clients that brokers require.
//
// It asks no broker, and keeps no list of what it has issued: a certificate is revoked by a new authority.
//
// # Invariants
//
//  1. No file is replaced, and a failed command leaves no file behind.
//  2. Only the owner can read a private key, from the moment its file exists.
//  3. The certificate of a client has no DNS name and is not valid for servers, so that no broker takes it for a broker's.
package certcmd
