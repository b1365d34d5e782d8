package api

// NotReadyHeader marks an HTTP answer of a broker that does not serve yet: it has done nothing with the request, and
// another broker may be asked.
const NotReadyHeader = "Lockstep-Not-Ready"

// IsProbe reports whether a path is a probe of a supervisor or a load balancer. Its answer is one sentence, discloses
// nothing, and does not wait, whatever the broker does.
func IsProbe(path string) bool { return path == "/ping" || path == "/healthz" || path == "/readyz" }
