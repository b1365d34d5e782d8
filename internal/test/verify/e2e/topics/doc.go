// Package topics creates, changes, deletes and restores topics and channels, and changes the brokers of a cluster. The rules of its tests
// are those of package e2e.
package topics
