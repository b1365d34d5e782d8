// Package walk causes the failures of docs/operations and compares the console, nsqctl and the alerts with
// the page. Most of its tests are part of `make walk` alone. The rules of its tests are those of package e2e.
package walk
