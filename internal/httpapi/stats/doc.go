// Package stats is the form of GET /stats, as JSON and as text: the keys, their order and the lines of a stock
// nsqd, which tools and scripts parse. It measures the heap for it, too.
//
// It gathers nothing: internal/httpapi asks the broker.
//
// Invariants: keys of a stock nsqd keep their names, order and types, new ones come behind; where a stock nsqd has
// an empty list or null, so does this one (Normal).
//
// It has no state and no goroutines.
package stats
