// Package chaos breaks a cluster of real brokers at random, again and again,
// and judges what its clients saw. It is all tests; `make chaos ROUNDS=n` runs
// n rounds, `go test` one.
//
// A round: three or five brokers, each in a network namespace of its own; go-nsq
// producers and consumers at all of them; two nemeses at the same time; heal;
// all replicas must be in sync again; the next two, until the round's time is
// over. Then every put must be answered, every channel drain, the replicas be
// equal and internal/verify/e2e/history find no fault.
//
// The test binary starts itself again inside new network and mount namespaces,
// so nothing of the network or of the small disks is left when it ends, however
// it ends. It needs Linux, ip (iproute2), nft (nftables), nsenter and /dev/net/tun, and the
// right to make namespaces; where one of them is missing the tests are skipped.
//
// Beside the rounds there are traces of internal/verify/model, each of which one rule
// alone keeps from a loss, played step by step: all that brokers say to each other
// passes through the test, which holds back what replicas say for as long as the
// trace needs (wire_test.go).
//
// Limits: it cuts no power (internal/verify/powercut does). Its processes share the
// machine's clock (internal/verify/sim has one for each broker). A seed repeats a plan,
// not a schedule.
//
// Invariants:
//
//  1. A round counts only if producers put at least half of the nominal load
//     before each pair of faults; otherwise it is void and reported so.
//  2. A long series is void unless it saw an election, a rollback, a put in
//     doubt, a truncation and a swap.
//  3. Clients reach every broker at all times: cuts are between brokers only.
//  4. At most one broker loses its disk in a round.
package chaos
