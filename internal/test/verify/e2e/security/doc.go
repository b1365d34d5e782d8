// Package security runs clusters behind TLS, tokens and an authorization service. The rules of its tests are those of package e2e.
package security
