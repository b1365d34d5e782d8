//go:build unix

package main

import (
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/sirupsen/logrus"
)

// slowTrace asks the runtime for a trace of its scheduler once in 24 days, the
// longest time there is.
const slowTrace = "schedtrace=2147483647"

// pace keeps the runtime's monitor thread at its slowest pace, 10 ms. Otherwise
// that thread sleeps whenever the process is idle, is woken by the first system
// call after it, and then looks around every 20 µs for a millisecond; a broker
// is idle thousands of times a second, for microseconds, and spent a third of
// its processor time on this. The runtime has no setting for it, but as long as
// traces are asked for the thread does not sleep, and so is not woken. They can
// be asked for at the start of a process only: this one starts itself again,
// under its own number. See docs/adr/0005.
//
// A GODEBUG that names schedtrace, 0 included, is left as it is.
func pace(log logrus.FieldLogger) {
	env := os.Getenv("GODEBUG")
	if strings.Contains(env, "schedtrace=") || runtime.GOMAXPROCS(0) < 2 {
		return
	}
	self, err := os.Executable()
	if err == nil {
		err = os.Setenv("GODEBUG", strings.TrimPrefix(env+","+slowTrace, ","))
	}
	if err == nil {
		err = syscall.Exec(self, os.Args, os.Environ())
	}
	log.WithError(err).Warn("cannot set the pace of the runtime's monitor thread, going on with more work for the processor")
}
