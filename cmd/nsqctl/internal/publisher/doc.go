// Package publisher publishes lines, or messages with headers, to a broker over the NSQ protocol:
// it keeps a window of unanswered puts over one connection, with TLS and AUTH, and continues at
// the next address when a broker fails. go-nsq waits for each answer before the next put, and
// continues in clear text at a port without TLS.
//
// It chooses no partition, subscribes to nothing and uses no HTTP. It prints nothing: the
// caller receives the reports of problems, the progress and the totals.
//
// # Invariants
//
//  1. A message counts as published, and its Stored is called, only when the broker has answered
//     OK. Answers come in the order of the puts.
//  2. A put without an answer, and one that a broker refuses for now, is retried until
//     Options.Retry has passed since its first attempt. A put that every broker would refuse
//     is not.
//  3. A put that is retried although it may be stored is counted in Totals.InDoubt.
//  4. If TLS is required, nothing but IDENTIFY leaves in clear text.
//
// # Goroutines
//
// One goroutine calls Run or Send and owns the publisher and the writing side of the
// connection. One reads the input of Run ahead, and one for each connection reads the answers;
// both pass on values by channels.
package publisher
