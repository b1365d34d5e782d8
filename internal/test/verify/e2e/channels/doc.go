// Package channels tests what consumers get while brokers are killed: order, delays, finishes. The rules of its tests are those of package e2e.
package channels
