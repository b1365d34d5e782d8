package lint_test

import (
	"strings"
	"testing"
)

// rooms are the parts of the broker around the engine. The broker connects them.
var rooms = []string{
	"coordinator/gateway", "coordinator/hosting", "coordinator/inspect", "coordinator/directory",
	"coordinator/admin", "coordinator/control", "coordinator/upkeep",
}

// edges are the packages between sockets and the broker.
var edges = []string{
	"internal/server", "internal/protocol", "internal/httpapi", "internal/httpsub", "internal/lookup", "internal/webui", "internal/console", "internal/auth", "internal/guard", "internal/statsd",
}

// layers lists the directories from the bottom to the top (docs/ARCHITECTURE.md has the
// picture). A package imports packages of lower layers, and of its own layer; Go itself refuses
// cycles among them. The longest match counts.
var layers = [][]string{
	{"internal/ident", "internal/outcome", "internal/vfs", "internal/config", "internal/metrics", "internal/etcdserver", "internal/nodefile", "internal/lint", "internal/sleep", "internal/signal", "internal/tasks", "internal/datapath", "internal/nonblock", "internal/inflight", "internal/budget", "internal/stopwatch", "internal/ratelimit", "internal/events", "internal/peerport", "internal/crowd", "internal/redact", "internal/msgstream", "internal/testkit"},
	{"commitlog", "internal/journal", "nsqd/queue", "nsqd/cursor", "nsqd/state", "nsqd/filter"},
	{"internal/store", "internal/edge", "internal/tracing", "coordinator/meta", "internal/access", "internal/admission"},
	{"nsqd", "rpc", "coordinator/replica", "coordinator/placement", "coordinator/calls", "coordinator/origin", "coordinator/deadletter", "coordinator/gateway/wire", "internal/health"},
	{"coordinator/catalog", "coordinator/controller"},
	{"coordinator/txn"},
	{"coordinator/engine", "coordinator/session", "coordinator/peers"},
	rooms,
	{"coordinator/dispatch"},
	{"coordinator"},
	append(edges, "internal/testkit/edgetest", "internal/testkit/brokertest"),
	{"internal/dump", "internal/devcluster", "internal/bench", "internal/testkit/clusters", "internal/testkit/e2etest", "internal/testkit/enginetest", "internal/verify"},
	{"cmd"},
}

// ban prohibits imports that the order of layers allows.
type ban struct {
	in, what []string
	why      string
}

var bans = []ban{
	{edges, []string{module + "/coordinator", module + "/nsqd", module + "/rpc", module + "/internal/store"},
		"an edge turns sockets into values behind internal/edge's interfaces, so that it can be tested without a cluster (nsqd/queue, the codec, is allowed)"},
	{[]string{"coordinator/replica", "coordinator/placement", "coordinator/controller"}, []string{"time", "os", "net", "sync", "math/rand", "crypto/rand", "context", module + "/internal/vfs", module + "/rpc", module + "/nsqd"},
		"decisions are pure: time, chance and I/O come in as events, so that the simulator runs the same code"},
	{[]string{"coordinator/engine"}, []string{module + "/coordinator/meta", module + "/coordinator/catalog", module + "/coordinator/txn", module + "/coordinator/session", module + "/internal/edge"},
		"the engine runs machines: what it needs of the metadata and of the cluster it is told, so that the way of a put can be read alone"},
	{[]string{"coordinator/peers"}, []string{module + "/coordinator/engine", module + "/rpc", module + "/nsqd", module + "/internal/store"},
		"which brokers are alive is judged apart from the frames that they send"},
	{rooms, each(rooms),
		"the rooms around the engine know it and the catalog, not each other: one can be changed, and tested, alone"},
	{append([]string{"coordinator", "coordinator/engine", "coordinator/peers", "coordinator/session", "coordinator/txn", "coordinator/catalog", "coordinator/dispatch"}, rooms...), []string{"net/http"},
		"HTTP belongs to internal/httpapi, which reaches the broker through internal/edge"},
	{[]string{"nsqd"}, []string{"net", "net/http", module + "/rpc", module + "/coordinator", module + "/internal/store"},
		"nsqd holds one node's queues and knows no network and no cluster"},
	{[]string{"nsqd/cursor", "nsqd/state", "nsqd/filter"}, []string{"os", "net", "time", "sync", "context"},
		"the state of a channel and its encoding are data: nsqd has the locks, the clock and the log"},
	{[]string{"commitlog", "nsqd/queue", "internal/journal", "internal/store"}, []string{"os", "net", module + "/nsqd", module + "/coordinator"},
		"files are reached through internal/vfs only, so that tests can crash the disk"},
	{[]string{"rpc"}, []string{module + "/coordinator", module + "/nsqd"},
		"rpc moves bytes between nodes and knows nothing of what they mean (nsqd/queue, the codec, is allowed)"},
}

// each returns the import paths of directories.
func each(folders []string) (paths []string) {
	for _, f := range folders {
		paths = append(paths, module+"/"+f)
	}
	return paths
}

// allowed lists imports that the prefix of a ban would match by mistake.
var allowed = map[string]bool{module + "/nsqd/queue": true, module + "/coordinator/meta": true}

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
				t.Errorf("%s: %s (layer %d) imports %s (layer %d): imports go downwards only", s.at(spec), s.dir(), from, target, layerOf(target))
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
	for i, folders := range layers {
		for _, f := range folders {
			if below(dir, f) && len(f) > best {
				best, layer = len(f), i
			}
		}
	}
	return layer
}
