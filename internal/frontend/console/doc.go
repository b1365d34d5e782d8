// Package console is the server side of the operators' page. It shows faults with their locations and times, and the
// last hour, for the whole cluster, from any broker.
//
// Every ten seconds a broker samples its topics, channels, rates, latencies and disk. It has the samples of the last
// hour in rings, and the latest one as a table. A query is sent to all brokers over the brokers' own connections, and
// the answers are merged here. The package has no routes (internal/frontend/httpapi) and no page
// (internal/frontend/webui).
//
// Limits: 360 points an hour, for the broker, for at most maxTopics topics and maxChannels channels that had something
// to show (about 10 MB when all are used). A query waits at most askTimeout for a broker. The file with the samples,
// the events and the audit has at most maxSaved bytes: it contains the most recently active topics and channels.
//
// Invariants:
//
//  1. A broker without an answer is listed in Unreachable, and its part is missing; it never counts as 0.
//  2. The sampler only reads existing counters, and adds no work to a put, delivery or finish.
//  3. The memory of the rings does not depend on the number of topics beyond the limits. The table of all topics is dropped when
//     no page asks.
//  4. Changes of the metadata are those that the queried broker saw. It requests the events of the other brokers if it
//     started later, or had no contact with the metadata at that time.
//  5. A broker that is killed loses the samples and events since the file was last written, at most saveEvery. A slow
//     disk does not delay Keep, except at its end, for at most saveWait.
//
// Goroutines: Keep, one for each broker; one for each broker that is asked, until its answer or askTimeout; and one while the
// file is written.
package console
