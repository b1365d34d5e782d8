// Package loss ends all brokers or a majority of them, and fails disks, while clients publish: nothing acknowledged is lost,
// nothing is stored twice. The rules of its tests are those of package e2e.
package loss
