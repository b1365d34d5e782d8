// Package mirror mirrors one cluster to another while links are cut, brokers are killed and topics are deleted. The rules of its tests are
// those of package e2e.
package mirror
