// Package chaos breaks a cluster of real brokers at random, again and again,
// and judges what its clients saw. Package rounds below it has the random rounds: `make chaos ROUNDS=n` runs
// n rounds, `go test` one. Package gray has the half-alive brokers, package once the producers that publish each message
// once. Here are the brokers, the faults and the judges that these share, and the tests of single faults. Alone, each of
// the four packages takes about a minute or less.
//
// A round: three or five brokers, each in a network namespace of its own; go-nsq
// producers and consumers at all of them; two nemeses at the same time; heal;
// all replicas must be in sync again; the next two, until the round's time is
// over. Then every put must be answered, every channel drain, the replicas be
// equal and internal/test/verify/judge find no fault.
//
// While faults continue, two judges look on. The vigil (vigil.go): if a minimum of in-sync members
// of each partition is well, and these reach each other and the metadata, puts are committed and
// answered within the times table of coordinator/replica/DESIGN.md and a second; and a leader that has
// served and is well delivers what is committed as long as the metadata names it. The operator
// (operator.go): a command to a broker that is well succeeds with an effect that is seen, or is
// refused with a reason, in time. Both excuse only what the harness has broken itself
// (health.go). No broker ends by itself.
//
// The test binary starts itself again inside new network and mount namespaces,
// so nothing of the network or of the small disks is left when it ends, however
// it ends. It needs Linux, ip (iproute2), nft (nftables), nsenter and /dev/net/tun, and the
// right to make namespaces; where one of them is missing the tests are skipped. The nemeses of disks
// that hang take root, loop devices and ext4 besides, those of wall clocks LOCKSTEP_CLOCKS=1
// (internal/test/testkit/skew), as in `make chaos`.
//
// Beside the rounds there are traces of internal/test/verify/model, each of which one rule
// alone keeps from a loss, played step by step: all that brokers say to each other
// passes through the test, which holds back what replicas say for as long as the
// trace needs (wire_test.go).
//
// Limits: it cuts no power (internal/test/verify/powercut does). A seed repeats a plan, not a schedule.
// A topic with eight partitions is judged by each partition's committed end; if one of them lacks its
// minimum, none is judged.
//
// Invariants:
//
//  1. A round counts only if producers put at least half of the nominal load
//     before each pair of faults; otherwise it is void and reported so.
//  2. A long series is void unless it saw an election, a put in doubt, a truncation, a swap,
//     and, where disks can hang, a rollback: a leader begins one only while every member
//     answers (RB-2), and one nemesis lets a member answer whose disk hangs.
//  3. Clients reach every broker at all times: cuts are between brokers only.
//  4. At most one broker loses its disk in a round.
package chaos
