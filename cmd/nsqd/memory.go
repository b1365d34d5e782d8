package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/sirupsen/logrus"
)

// memoryShare is the part of a container's memory that the Go runtime may use. The rest is for the kernel's memory of
// the process, and for the growth during a garbage collection.
const memoryShare = 0.9

// limitMemory sets GOMEMLIMIT from the memory limit of the container (cgroup v1 or v2, or systemd's MemoryMax=).
// Without it the heap may grow to twice the live data, and the kernel ends the process although a garbage collection
// would have sufficed. A GOMEMLIMIT in the environment has precedence. GOMAXPROCS needs no setting: the Go runtime
// derives it from the cgroup's CPU limit and follows its changes.
func limitMemory(log logrus.FieldLogger) {
	if text := os.Getenv("GOMEMLIMIT"); text != "" {
		log.WithFields(logrus.Fields{"limit": text, "from": "GOMEMLIMIT"}).Info("memory limit set")
		return
	}
	limit, err := memlimit.FromCgroup()
	if err == nil {
		ours := int64(min(float64(limit)*memoryShare, math.MaxInt64/2))
		debug.SetMemoryLimit(ours)
		log.WithFields(logrus.Fields{"limit": fmt.Sprintf("%dMiB", ours>>20), "from": "container"}).Info("memory limit set")
		return
	}
	for _, none := range []error{memlimit.ErrNoLimit, memlimit.ErrNoCgroup, memlimit.ErrCgroupsNotSupported, fs.ErrNotExist} {
		if errors.Is(err, none) {
			return
		}
	}
	log.WithError(err).Warn("cannot read the memory limit of the container, continuing without one: set GOMEMLIMIT")
}
