// Package console is the server side of the operators' page. It shows what is wrong, where, since when, and how the last hour
// went, for the whole cluster, from any broker.
//
// A broker samples itself every ten seconds: its topics, channels, rates, latencies and disk. It keeps the last hour of the
// samples in rings, and the last sample as a table. A question is put to all brokers at once over the brokers' own connections,
// and the answers are joined here. The package has no routes (internal/frontend/httpapi) and no page (internal/frontend/webui).
//
// Limits: 360 points an hour, for the broker, for at most maxTopics topics and maxChannels channels that had something to show
// (about 10 MB when all are used). A question waits at most askTimeout for a broker. The file with the samples, the events and
// the audit has at most maxSaved bytes: the topics and channels that were active last are in it.
//
// Invariants:
//
//  1. A broker without an answer is named in Unreachable, and its part is missing; nothing is counted as 0 for it.
//
//  2. The sampler reads counters that exist already; no put, delivery or finish does anything for it.
//
//  3. The memory of the rings does not depend on the number of topics beyond the limits. The table of all topics is dropped when
//     no page asks.
//
//  4. The changes in the metadata are those that the asked broker saw. It asks the others for theirs if it started later, or was
//     disconnected from the metadata at that time.
//
//  5. A broker that is killed loses the samples and events since the last write of the file, at most saveEvery. No disk holds
//     Keep up, but its end for saveWait.
//
// Goroutines: Keep, one for each broker; one for each broker that is asked, until its answer or askTimeout; and one while the
// file is written.
package console
