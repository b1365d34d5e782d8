// Package cost compares what two builds of nsqd cost: processor time, allocations, allocated bytes and journal bytes for
// each message of fixed workloads, and the bytes that idle brokers hold. It is the last step of the gate; its base is the
// build of the commit in .ci/cost-base. It measures no latency and no rate: internal/test/bench does.
//
// A round starts three brokers of each build, side by side. In each row the same clients drive both clusters in bursts
// of some milliseconds, in the order ABBA, so that other load of the machine affects both. A turn is a few such bursts;
// its figure is the ratio of the processor times. Rounds follow until every row is decided.
//
// # Invariants
//
//  1. A row costs too much only if its median ratio is above the allowed one with a confidence of 99.9 %. It is accepted if
//     the median is below the allowed ratio with a confidence of 95 %.
//  2. A row that is undecided when the time is up neither fails nor passes silently: the report and Undecided have it. A row whose
//     median is above the allowed ratio gets more time.
//  3. Counts hardly vary. They are judged after the first round; a count that is too high must stay so in the median of five.
//  4. Both clusters do the same work. Placement depends only on earlier creations, and each build starts first in turn.
package cost
