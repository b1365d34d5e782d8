package admission

// MaxTime is for tests.
const MaxTime = maxTime

// ErrNotReady is for tests.
var ErrNotReady = errNotReady
