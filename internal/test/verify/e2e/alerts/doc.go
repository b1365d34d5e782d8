// Package alerts causes each alert of contrib/prometheus/alerts.yml at running brokers and judges their scrapes with
// promtool. The rules of its tests are those of package e2e.
package alerts
