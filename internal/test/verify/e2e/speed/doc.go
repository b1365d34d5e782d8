// Package speed measures what is promised in figures: puts alongside backlogs, delays, filters, relayed subscriptions, the cost of
// identifiers. The rules of its tests are those of package e2e. Its tests run one after the other.
package speed
