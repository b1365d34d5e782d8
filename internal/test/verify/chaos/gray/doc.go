// Package gray lets brokers be half alive (internal/test/verify/chaos): links that flap, processes that stall, disks that
// hang. It has no rounds of random pairs of faults (internal/test/verify/chaos/rounds).
package gray
