// Package upgrade opens data of the first release, and upgrades its brokers under load. The rules of its tests are those of package e2e.
package upgrade
