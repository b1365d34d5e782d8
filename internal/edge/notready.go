package edge

// NotReadyHeader marks an HTTP answer of a broker that does not serve yet: it has done
// nothing with the request, and another broker may be asked.
const NotReadyHeader = "Lockstep-Not-Ready"
