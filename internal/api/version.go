package api

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Version is the release of NSQ whose protocol and HTTP API the brokers speak. IDENTIFY, /info, /stats, /lookup and
// /nodes have it: clients parse it and compare it with NSQ's releases. ReadBuild has the version of the product.
const Version = "1.3.0"

// unreleased is the version of builds for which none was set.
const unreleased = "0.1.0-dev"

// product is the version of a release. Only the linker sets it:
//
//	-ldflags "-X github.com/lockstepmq/lockstep/internal/api.product=1.2.3"
var product string

// build names a build of Lockstep.
type build struct {
	Version string // of the product, such as 0.1.0-dev
	Commit  string // 12 hex digits, and "+modified" if files differed from it; "unknown" in builds without version control
}

// ReadBuild names the build that runs.
func ReadBuild() build {
	b := build{Version: cmp.Or(product, unreleased), Commit: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	// `go install …@v1.2.3` has no linker flags; go invents all other versions of the module.
	if v := info.Main.Version; product == "" && strings.HasPrefix(v, "v") && !strings.ContainsAny(v, "-+") {
		b.Version = v[1:]
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; revision != "" {
		b.Commit = revision[:min(len(revision), 12)]
		if settings["vcs.modified"] == "true" {
			b.Commit += "+modified"
		}
	}
	return b
}

// Describe is one line for operators; level is the feature level of the build.
func (b build) Describe(level int) string {
	return fmt.Sprintf("lockstep %s (commit %s, feature level %d, built w/%s)", b.Version, b.Commit, level, runtime.Version())
}
