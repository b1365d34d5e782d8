// Package migration contains the commands of nsqctl that move messages of stock NSQ to Lockstep: migrate, which bridges
// the channels of a running cluster, and import-nsqd, which reads the data path of a stopped nsqd.
//
// It does not read the files of an nsqd (cmd/nsqctl/internal/stockdata), and publishes no message itself
// (cmd/nsqctl/internal/publisher). It changes nothing in the data path but its own state file.
//
// # Invariants
//
//  1. The saved position of an import is after messages that were all answered OK, whatever the order of the answers.
//  2. An import continues only with the topics that it created, and only at the same cluster.
//  3. The credentials of one cluster are not sent to the other; the stock cluster gets none over HTTP.
//  4. A bridge finishes a message at the stock nsqd only after Lockstep has answered OK. Until then the stock nsqd has it,
//     and delivers it again after a failure of the bridge.
//  5. A message that the stock nsqd delivers again while its put has no answer is not published a second time.
//  6. An nsqd or nsqlookupd that does not answer is an error: an incomplete topology would look like an empty queue.
//  7. Topics and channels with the suffix #ephemeral are left out: they are deleted with their last client.
//
// # Goroutines
//
// The command's goroutine owns an import and a migration. An import publishes in it, and reads ahead in another one. In
// a bridge go-nsq calls HandleMessage from one goroutine, and one runs the publisher, which calls stored; both end
// before stop returns. Bridges report through a cli.Reporter.
package migration
