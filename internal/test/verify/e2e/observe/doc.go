// Package observe reads the metrics and traces of a running cluster. The rules of its tests are those of package e2e.
package observe
