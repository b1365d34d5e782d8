// Package dispatch takes the frames and calls of other brokers, and makes calls to them: one
// table has the handler of each class of frames and each method.
//
// It carries nothing out itself. A call to this broker takes the same way as a remote one, without the network.
//
// # Invariants
//
//  1. A frame or a call of another broker that comes before Open waits for it.
//  2. A request is decoded into the type that the method has for all (package calls).
//
// It starts no goroutine: frames come on the transport's readers, calls on goroutines of their own.
package dispatch
