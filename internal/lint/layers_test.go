package lint_test

import (
	"strings"
	"testing"
)

// components are the parts of the broker around the engine. The broker connects them.
var components = []string{
	"coordinator/gateway", "coordinator/replicas", "coordinator/query", "coordinator/admin", "coordinator/controller", "coordinator/maintenance",
}

// frontends are the packages between sockets and the broker.
var frontends = []string{"internal/frontend", "internal/auth/authd", "internal/auth/guard", "internal/observe/statsd"}

// layer is a group of folders, and what they have in common.
type layer struct {
	what    string
	folders []string
}

// layers lists them from the bottom to the top (docs/ARCHITECTURE.md has the picture). A package imports packages of lower
// layers, and of its own layer; Go itself refuses cycles among them. The longest match counts.
var layers = []layer{
	{"tools without queues and clusters", []string{
		"internal/ident", "internal/vfs", "internal/option", "internal/config", "internal/concurrency", "internal/nsqclient", "internal/api/outcome", "internal/api/msgstream",
		"internal/auth/limits", "internal/observe/events", "internal/observe/redact",
		"coordinator/metadata/etcd", "coordinator/metadata/nodefile", "rpc/peertls", "internal/lint", "internal/test/testkit"}},
	{"formats: batches, the journal, the states of channels", []string{"commitlog", "nsqd/journal", "nsqd/queue", "nsqd/cursor", "nsqd/state", "nsqd/filter"}},
	{"values that layers share: the API, the metadata, the rights; the data directory", []string{"nsqd/store", "internal/api", "internal/observe/metrics", "internal/observe/tracing", "coordinator/metadata", "internal/auth/access"}},
	{"one node's queues; the protocol and its messages", []string{"nsqd", "rpc", "coordinator/replica", "coordinator/gateway/wire", "internal/observe/health"}},
	{"the metadata as one broker sees and writes it; pure plans", []string{"coordinator/metadata/catalog", "coordinator/metadata/txn", "coordinator/controller/plan", "internal/auth/admission"}},
	{"core loops, the registration of this broker, the liveness of the others", []string{"coordinator/engine", "coordinator/metadata/session", "coordinator/liveness"}},
	{"components of the broker", components},
	{"one broker of a cluster", []string{"coordinator", "coordinator/dispatch"}},
	{"front ends, and all that proves and measures", append(frontends, "internal/test", "internal/test/testkit/brokertest", "internal/test/testkit/clitest", "internal/test/testkit/clusters", "internal/test/testkit/e2etest", "internal/test/testkit/edgetest", "internal/test/testkit/enginetest")},
	{"programs", []string{"cmd"}},
}

// ban prohibits imports that the order of layers allows.
type ban struct {
	in, what []string
	why      string
}

var bans = []ban{
	{frontends, []string{module + "/coordinator", module + "/nsqd", module + "/rpc", module + "/rpc/calls"},
		"a front end turns sockets into values behind internal/api's interfaces, so that it can be tested without a cluster (nsqd/queue, the codec, is allowed)"},
	{[]string{"coordinator/replica", "coordinator/controller/plan"}, []string{"time", "os", "net", "sync", "math/rand", "crypto/rand", "context", module + "/internal/vfs", module + "/rpc", module + "/nsqd"},
		"decisions are pure: time, chance and I/O come in as events, so that the simulator runs the same code"},
	{[]string{"coordinator/engine"}, []string{module + "/coordinator/metadata", module + "/internal/api"},
		"the engine runs machines: its caller passes what it needs of the metadata and of the cluster, so that the path of a put can be read alone"},
	{[]string{"coordinator/liveness"}, []string{module + "/coordinator/engine", module + "/rpc", module + "/nsqd"},
		"which brokers are alive is judged apart from the frames that they send"},
	{components, each(components),
		"the components around the engine know it and the catalog, not each other: each can be changed and tested separately"},
	{append([]string{"coordinator", "coordinator/engine", "coordinator/liveness", "coordinator/metadata/session", "coordinator/metadata/txn", "coordinator/metadata/catalog", "coordinator/dispatch"}, components...), []string{"net/http"},
		"HTTP belongs to internal/frontend/httpapi, which reaches the broker through internal/api"},
	{[]string{"nsqd"}, []string{"net", "net/http", module + "/rpc", module + "/coordinator", module + "/nsqd/store", module + "/nsqd/journal"},
		"nsqd holds one node's queues and has no network and no cluster"},
	{[]string{"nsqd/cursor", "nsqd/state", "nsqd/filter"}, []string{"os", "net", "time", "sync", "context"},
		"the state of a channel and its encoding are data: nsqd has the locks, the clock and the log"},
	{[]string{"commitlog", "nsqd/queue", "nsqd/journal", "nsqd/store"}, []string{"os", "net", module + "/coordinator"},
		"files are reached through internal/vfs only, so that tests can crash the disk"},
	{[]string{"rpc"}, []string{module + "/coordinator", module + "/nsqd"},
		"rpc moves bytes between nodes without their meaning (nsqd/queue, the codec, is allowed)"},
}

// each returns the import paths of directories.
func each(folders []string) (paths []string) {
	for _, f := range folders {
		paths = append(paths, module+"/"+f)
	}
	return paths
}

// allowed lists imports that the prefix of a ban would match by mistake.
var allowed = map[string]bool{
	module + "/nsqd/queue": true, module + "/rpc/calls": true, module + "/coordinator/metadata": true, module + "/coordinator/controller/plan": true, module + "/internal/api/outcome": true,
}

func TestImportsGoDownwards(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue // a test may import any package
		}
		from := layerOf(s.dir())
		if from < 0 {
			t.Errorf("%s: folder %s has no layer; add it to internal/lint", s.path, s.dir())
			continue
		}
		for imported, spec := range s.imports() {
			target, ours := strings.CutPrefix(imported, module+"/")
			if ours && layerOf(target) > from {
				t.Errorf("%s: %s (%s) imports %s (%s): imports go downwards only", s.at(spec), s.dir(), layers[from].what, target, layers[layerOf(target)].what)
			}
		}
	}
}

func TestBannedImports(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, b := range bans { // none bans a package's own parts, such as coordinator/gateway/wire
			if !b.covers(s.dir()) {
				continue
			}
			for imported, spec := range s.imports() {
				if b.bans(imported) && !below(imported, module+"/"+s.dir()) {
					t.Errorf("%s: must not import %s: %s", s.at(spec), imported, b.why)
				}
			}
		}
	}
}

// covers reports whether the ban holds for dir; nsqd/queue is not a part of nsqd.
func (b ban) covers(dir string) bool {
	for _, root := range b.in {
		if below(dir, root) && layerOf(dir) == layerOf(root) {
			return true
		}
	}
	return false
}

func (b ban) bans(imported string) bool {
	for _, what := range b.what {
		ours := strings.HasPrefix(what, module)
		if imported == what || ours && below(imported, what) && !allowed[imported] {
			return true
		}
	}
	return false
}

// layerOf returns the layer of a directory, -1 if none is listed.
func layerOf(dir string) int {
	best, layer := 0, -1
	for i, l := range layers {
		for _, f := range l.folders {
			if below(dir, f) && len(f) > best {
				best, layer = len(f), i
			}
		}
	}
	return layer
}
