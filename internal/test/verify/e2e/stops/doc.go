// Package stops stops and hangs single brokers under load, as planned or not, and measures what producers and consumers of the
// others notice. The rules of its tests are those of package e2e.
package stops
