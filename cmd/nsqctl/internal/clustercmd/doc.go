// Package clustercmd has the commands of nsqctl about the cluster as a whole: cluster (status, health, events, balance,
// upgrade), broker (list, drain, decommission), and version, which can ask the brokers for their builds.
//
// It judges no health itself (internal/observe/health), plans and moves nothing (cmd/nsqctl/internal/placement requests that), and
// has no command about a topic or a channel.
//
// # Invariants
//
//  1. A number that no live broker can give is printed as unknown, and not as 0.
//  2. The exit codes of health, safe-to-stop and upgrade status are for scripts: 0 only if the answer is a whole yes.
//  3. A broker that gives no answer is named with the reason.
package clustercmd
