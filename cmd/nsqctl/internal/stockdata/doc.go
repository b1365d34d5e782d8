// Package stockdata reads the data path of a stopped stock nsqd 1.x: the topics and channels of
// nsqd.dat, and the disk queues of github.com/nsqio/go-diskqueue.
//
// It changes no file, publishes nothing and connects to nothing. It does not read the data path of the fork youzan/nsq,
// but detects it. A stock nsqd writes the deferred and requeued messages of a channel into its disk queue when it
// stops, without their deadlines; the format has no place for them.
//
// # Invariants
//
//  1. The data path is locked as a stock nsqd locks it between Open and Close, so no nsqd can run on it.
//  2. A reader returns at least the messages that a stock nsqd 1.3.0 would deliver after a restart, in the same order.
//     It begins at the read position of the metadata, reads on beyond its write position to the end of the file, and
//     continues with the next file after a record that cannot be read.
//  3. Bytes that cannot be read are reported with their file and offset.
package stockdata
