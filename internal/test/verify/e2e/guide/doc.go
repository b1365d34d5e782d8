// Package guide runs the commands and programs of README.md and of docs/guide, and the commands of nsqctl that they name. The rules of its tests
// are those of package e2e.
package guide
