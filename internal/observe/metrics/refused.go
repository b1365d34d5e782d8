package metrics

// Refusal is a limit at a port for clients that has refused, delayed or cut off a client.
type Refusal uint8

// The refusals. docs/reference/limits.md has the limits.
const (
	RefusedTCPConnections  Refusal = iota // too many clients at the TCP port
	RefusedTCPAddress                     // too many clients of one address at the TCP port
	RefusedTCPUser                        // too many clients of one user at the TCP port
	RefusedTCPMagic                       // the protocol was not chosen in time
	RefusedTCPLogin                       // IDENTIFY and AUTH were not complete in time
	RefusedTCPHandshake                   // a TLS handshake at the TCP port failed or took too long
	RefusedTCPSize                        // the body of IDENTIFY or AUTH was too large
	RefusedTCPMemory                      // no memory for a body came free in time
	RefusedTCPExpansion                   // compressed input became too large
	RefusedTCPSlow                        // a large body arrived too slowly
	RefusedTCPWaiting                     // a connection at the TCP port gave way before its login
	RefusedHTTPConnections                // too many connections at the HTTP ports
	RefusedHTTPAddress                    // too many connections of one address at the HTTP ports
	RefusedHTTPMemory                     // no memory for a body came free in time
	RefusedHTTPSlow                       // a large body arrived too slowly
	RefusedHTTPWaiting                    // a connection at the HTTP ports gave way before its login
	refusals
)

var refusalLabels = [refusals]string{
	"tcp_connections", "tcp_address", "tcp_user", "tcp_magic", "tcp_login", "tcp_handshake", "tcp_size", "tcp_memory", "tcp_expansion", "tcp_slow",
	"tcp_waiting", "http_connections", "http_address", "http_memory", "http_slow", "http_waiting",
}

// Refusals lists the values of the label, for the table in docs/reference/limits.md.
func Refusals() []string { return refusalLabels[:] }
