// Package clustertest is what the tests with real brokers share: packages e2e
// (processes on loopback) and chaos (hosts of their own in one machine). Nothing
// that ships imports it. It starts, stops and judges no cluster: that is what
// the two do differently.
//
//  1. Nothing here waits or tries again; who asks decides how long.
package clustertest
