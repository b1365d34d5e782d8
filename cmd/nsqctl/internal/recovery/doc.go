// Package recovery changes the data path of a stopped broker after a loss: it continues with
// one member of the embedded etcd, and it vouches for a copied data path.
//
// It asks for no confirmation and prints nothing: the commands of nsqctl do. It connects to no
// broker. The recovery of a topic without its in-sync set is not here: the brokers carry it out
// (coordinator/admin).
//
// # Invariants
//
//  1. Nothing changes while a broker runs on the data path: the recovery holds the path's lock.
//  2. A copy of the etcd directory exists before the directory is changed.
//  3. No revision of the metadata that a lost member may have given out is used again.
package recovery
