package authd

import (
	"testing"
	"time"
)

// FuzzAnswer: any answer of an auth service is refused as a whole, or judges any topic and channel
// without a panic; one without a permission allows nothing.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"ttl":60,"identity":"joe","authorizations":[{"topic":".*","channels":[".*"],"permissions":["publish","subscribe"]}]}`,
		`{"ttl":60,"authorizations":[{"topic":"(","channels":["[","*"],"permissions":["subscribe"]}]}`, `{"ttl":-1}`, `{"ttl":9223372036854775807}`,
		`{"ttl":1,"authorizations":[{"topic":"^a$","channels":[],"permissions":["publish"]},null]}`, `null`, `[]`, `{"ttl":1,"authorizations":[{"permissions":["admin"]}]}`,
	} {
		f.Add([]byte(seed), "orders", "c")
	}
	f.Fuzz(func(t *testing.T, answer []byte, topic, channel string) {
		s, err := Parse(answer, time.Now())
		if err != nil {
			return
		}
		publish, subscribe := s.Allows(topic, ""), channel != "" && s.Allows(topic, channel)
		permissions := 0
		for _, a := range s.Authorizations {
			permissions += len(a.Permissions)
		}
		if (publish || subscribe) && (permissions == 0 || !s.Knows(topic)) {
			t.Fatalf("%s allows %q %q", answer, topic, channel)
		}
	})
}
