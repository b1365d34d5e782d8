package lint_test

import (
	"strings"
	"testing"
)

// layers lists the folders from the bottom to the top (DESIGN: parts and
// layers). A package imports packages of lower layers, and its neighbours in
// its own layer; Go itself refuses circles among them. The longest match counts.
var layers = [][]string{
	{"internal/ident", "internal/vfs", "internal/config", "internal/metrics", "internal/etcdserver", "internal/lint", "internal/mutation", "internal/loopdisk", "internal/certtest", "internal/pause", "internal/testenv", "internal/datapath", "internal/nowait", "internal/lone", "internal/tcptest"},
	{"commitlog", "internal/journal", "nsqd/queue"},
	{"internal/store", "internal/edge", "coordinator/meta"},
	{"nsqd", "rpc", "coordinator/replica", "coordinator/placement"},
	{"coordinator"},
	{"internal/server", "internal/protocol", "internal/httpapi", "internal/lookup", "internal/webui", "internal/auth", "internal/statsd"},
	{"internal/sim", "internal/model", "internal/dump", "internal/devcluster", "internal/bench", "internal/clustertest", "internal/chaos", "internal/e2e"},
	{"cmd"},
}

// edges are the packages between sockets and the broker.
var edges = layers[5]

// ban keeps some packages out of others, beyond the order of layers.
type ban struct {
	in, what []string
	why      string
}

var bans = []ban{
	{edges, []string{module + "/coordinator", module + "/nsqd", module + "/rpc", module + "/internal/store"},
		"an edge turns sockets into values behind internal/edge's interfaces, so that it can be tested without a cluster (nsqd/queue, the codec, is allowed)"},
	{[]string{"coordinator/replica", "coordinator/placement"}, []string{"time", "os", "net", "sync", "math/rand", "crypto/rand", "context", module + "/internal/vfs", module + "/rpc", module + "/nsqd"},
		"decisions are pure: time, chance and I/O come in as events, so that the simulator runs the same code"},
	{[]string{"nsqd"}, []string{"net", "net/http", module + "/rpc", module + "/coordinator", module + "/internal/store"},
		"nsqd holds one node's queues and knows no network and no cluster"},
	{[]string{"commitlog", "nsqd/queue", "internal/journal", "internal/store"}, []string{"os", "net", module + "/nsqd", module + "/coordinator"},
		"files are reached through internal/vfs only, so that tests can crash the disk"},
	{[]string{"rpc"}, []string{module + "/coordinator", module + "/nsqd"},
		"rpc moves bytes between nodes and knows nothing of what they mean (nsqd/queue, the codec, is allowed)"},
}

// allowed names imports that a ban's prefix would catch by mistake.
var allowed = map[string]bool{module + "/nsqd/queue": true, module + "/coordinator/meta": true}

func TestImportsGoDownwards(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue // a test may reach for any real thing
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
		for _, b := range bans {
			if !b.covers(s.dir()) {
				continue
			}
			for imported, spec := range s.imports() {
				if b.bans(imported) {
					t.Errorf("%s: must not import %s: %s", s.at(spec), imported, b.why)
				}
			}
		}
	}
}

// covers says whether dir belongs to the ban; nsqd/queue is no part of nsqd.
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

// layerOf gives the layer of a folder, -1 if none is listed.
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
