// Package kills kills single brokers under load and measures what producers and consumers of the others notice. The rules of its tests are those of package e2e.
package kills
