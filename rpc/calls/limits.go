package calls

import "github.com/lockstepmq/lockstep/rpc"

const (
	// requestBytes is enough for the request of any method but those below.
	requestBytes = 1 << 20
	// cancelBytes is enough for the sequences in the largest body that the HTTP API accepts by
	// default. Decoded they take up to eight times as much.
	cancelBytes = 4 << 20
	// responseBytes is enough for the ends of 400,000 partitions.
	responseBytes = 16 << 20
)

// Limits returns the limits of a method. They bound the memory that another broker can make
// this one take: a decoded request or response is a multiple of the encoded one.
func Limits(method string) rpc.CallLimits {
	l := rpc.CallLimits{Request: requestBytes, Response: responseBytes}
	switch method {
	case string(Deferred):
		l.Request = cancelBytes
	case string(Batches), string(Peek): // bytes of messages, which take no more room when decoded
		l.Response = rpc.MaxPayload
	case string(Topics), string(Digest), string(Console):
		l.Response = 4 * responseBytes
	}
	return l
}
