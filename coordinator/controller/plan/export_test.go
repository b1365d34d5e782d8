package plan

// ErrTooFewBrokers is for tests.
var ErrTooFewBrokers = errTooFewBrokers
