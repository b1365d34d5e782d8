// Package client publishes to and consumes from a Lockstep cluster.
//
//	c, err := client.Open(ctx, []string{"127.0.0.1:4150", "127.0.0.1:4250"}, client.Options{})
//	p := c.Producer(client.ProducerOptions{})
//	err = p.Publish(ctx, "orders", client.Message{Body: []byte("one"), Key: "customer-7"})
//	err = c.Consume(ctx, "orders", "billing", client.ConsumeOptions{MaxInFlight: 100}, handle)
//
// Every broker accepts every put and serves every channel, so one address works. With all
// addresses the client continues when a broker dies. An address is the host:port of a broker's
// TCP port, or the URL of its HTTP port (http://host:4151), from which the client learns all
// brokers.
//
// # The fate of a put
//
// A put without an error is committed: it is on all in-sync replicas. Every error of a put is
// either [ErrNotStored] or [ErrInDoubt], never both. ErrNotStored is definite: no consumer will
// ever see the message. ErrInDoubt means that the message may be stored: the connection broke
// before the answer came, or the broker itself could not learn the outcome.
//
// The producer repeats a refused put until its retry budget is used up, as long as a repeat
// cannot store the message twice. A put that is in doubt is repeated if each of its messages has
// an ID, by which the brokers recognise the repeat of another connection: the message is then
// stored exactly once. An application that publishes again after an error does so under the same
// ID. [RetryInDoubt] also repeats puts without IDs: each message is stored at least once.
//
// Messages of one producer are stored in the order of their Send calls as long as no put is
// repeated and no connection breaks. With MaxInFlight 1 the order holds always.
//
// # The lease of a message
//
// The handler's context ends when the broker may deliver the message to another consumer: the
// connection broke, the broker refused to extend the lease, or the longest lease is over. While
// the handler runs the client extends the lease by itself. Clocks and networks delay the end
// of the context, so a handler that changes external state of an ordered channel also compares
// [Delivery.Token]: it never decreases from one owner of a partition to the next.
//
// A message is delivered at least once: a finish that was lost with its connection brings the
// message again.
//
// # Goroutines
//
// A Client has one goroutine if it was given URLs; it ends with Close. A Producer has one, two
// for each connection, and one while it connects; they end with Close. Consume has two for each
// connection, one for the leases and one for each message in progress; all have ended when it
// returns.
//
// # Limits
//
// The client speaks the extended commands of Lockstep: it consumes from no stock nsqd. It does
// not choose a partition by number, and a message with a Delay has neither ID, Key, Headers nor TTL,
// because the brokers have no command for both.
package client
