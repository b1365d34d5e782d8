//go:build unix

package main

import (
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/sirupsen/logrus"
)

// slowTrace requests a trace of the runtime's scheduler once in 24 days, the longest possible interval.
const slowTrace = "schedtrace=2147483647"

// pace keeps the runtime's monitor thread at its slowest pace, 10 ms. Without it that thread sleeps whenever the
// process is idle. The first system call afterwards wakes it, and it then polls every 20 µs for a millisecond. A broker
// is idle thousands of times a second, for microseconds, and spent a third of its processor time on this.
//
// The runtime has no setting for the pace, but while scheduler traces are requested the thread does not sleep, and so
// is not woken. Traces can be requested only at the start of a process: this one restarts itself (exec), with the same
// pid. See docs/adr/0005.
//
// A GODEBUG that names schedtrace, also with 0, has precedence.
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
	log.WithError(err).Warn("cannot set the pace of the runtime's monitor thread, continuing with a higher processor load")
}
