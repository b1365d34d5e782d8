// Package dispatch takes the frames and calls of other brokers, and makes calls to them: one table lists the handler of
// each frame class and each method.
//
// It implements no call itself. A call to this broker takes the same path as a remote one, without the network.
//
// # Invariants
//
//  1. A frame or a call of another broker that comes before Open waits for it.
//  2. A request is decoded into the type that package calls defines for the method.
//
// It starts no goroutine: frames come on the transport's readers, calls on goroutines of their own.
package dispatch
