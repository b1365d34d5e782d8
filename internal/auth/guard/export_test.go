package guard

// CookieLifetime is for tests.
const CookieLifetime = cookieLifetime

// ErrBadLogin is for tests.
var ErrBadLogin = errBadLogin
