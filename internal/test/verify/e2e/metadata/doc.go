// Package metadata runs brokers on an etcd of its own, and without one that answers. The rules of its tests are those of package e2e.
package metadata
