// Package rounds has the rounds of random faults (internal/test/verify/chaos): `make chaos ROUNDS=n` runs n of them,
// `go test` one. It has no test of one fault by itself.
//
// It runs for as long as the seed's faults last: a broker that is stopped may be stopped for a minute.
package rounds
