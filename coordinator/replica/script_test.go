package replica

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// TestScripts runs testdata/*.txt: events in, effects out. In the order of their
// numbers the scripts explain the protocol; testdata/README.md lists the commands.
//
//	go test ./coordinator/replica -run TestScripts -rewrite
//
// writes the effects of the present code into them: read the difference.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := &script{}
			datadriven.RunTest(t, file, s.run)
		})
	}
}

// script is one run of a file.
type script struct {
	lab *lab
	d   *datadriven.TestData
}

// commands are the commands of the scripts.
var commands = map[string]func(*script){
	"cluster": (*script).cluster, "show": (*script).show,
	"put": (*script).put, "publish": (*script).publish, "repeat": (*script).repeat, "dedupe": (*script).dedupe, "unreadable": (*script).unreadable, "low": (*script).low, "change": (*script).change, "transfer": (*script).transfer,
	"sync": (*script).sync, "deliver": (*script).deliver, "drop": (*script).drop, "read": (*script).read,
	"tick": (*script).tick, "pass": (*script).pass, "settle": (*script).settle,
	"decide": (*script).decide, "lose-answer": (*script).loseAnswer, "delay": (*script).delay, "land": (*script).land,
	"watch": (*script).watch, "etcd": (*script).etcd, "min-isr": (*script).minISR, "replicas": (*script).replicas,
	"stall": (*script).stall, "cut": (*script).cut, "isolate": (*script).isolate, "down": (*script).down, "up": (*script).up,
	"crash": (*script).crash, "kill": (*script).kill, "start": (*script).start, "unregister": (*script).unregister, "register": (*script).register,
	"wipe": (*script).wipe, "trim": (*script).trim, "disk-error": (*script).diskError, "resend": (*script).resend,
	"forge": (*script).forge, "recover": (*script).recover, "partitioned": (*script).partitioned,
}

// quietly marks the commands after which all parts work by themselves: they print reports
// alone. `verbose` makes them print every step.
var quietly = map[string]bool{"pass": true, "settle": true, "start": true, "cluster": true, "kill": true}

// silent marks the commands that are no event of a machine.
var silent = map[string]bool{
	"drop": true, "resend": true, "stall": true, "cut": true, "isolate": true, "crash": true, "wipe": true, "trim": true, "unreadable": true, "low": true, "dedupe": true, "etcd": true, "land": true,
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	do, ok := commands[d.Cmd]
	if !ok {
		d.Fatalf(t, "no command %q; testdata/README.md lists them", d.Cmd)
	}
	if s.lab == nil && d.Cmd != "cluster" {
		d.Fatalf(t, "a script begins with `cluster`")
	}
	s.d = d
	if s.lab != nil {
		s.lab.quiet = quietly[d.Cmd] && !d.HasArg("verbose")
	}
	defer violated(t, d)
	do(s)
	s.lab.checkCommitted()
	out := s.lab.out.String()
	s.lab.out.Reset()
	if out == "" && !silent[d.Cmd] {
		return "no effect"
	}
	return out
}

// violated fails the script, and no other one, when an invariant of the machine (check.go)
// or of the lab is broken.
func violated(t *testing.T, d *datadriven.TestData) {
	p := recover()
	if text, ok := p.(string); ok {
		d.Fatalf(t, "%s", text)
	}
	if p != nil {
		panic(p)
	}
}

// value is the argument key=value.
func (s *script) value(key string) (string, bool) {
	for _, a := range s.d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return strings.Join(a.Vals, " "), true
		}
	}
	return "", false
}

func (s *script) number(key string, otherwise int) int {
	v, ok := s.value(key)
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		panic(err)
	}
	return n
}

// words are the arguments without a value, but flags.
func (s *script) words() (all []string) {
	for _, a := range s.d.CmdArgs {
		if len(a.Vals) == 0 && a.Key != "verbose" {
			all = append(all, a.Key)
		}
	}
	return all
}

// first is the broker that a command names first, and the rest of its words.
func (s *script) first() (*labNode, []string) {
	w := s.words()
	return s.lab.node(ident.Node(w[0])), w[1:]
}

// brokers are those that a command names; all if it names none.
func (s *script) brokers() (all []*labNode) {
	for _, w := range s.words() {
		all = append(all, s.lab.node(ident.Node(w)))
	}
	if all == nil {
		return s.lab.nodes
	}
	return all
}

// matching chooses messages by from=, to= and kind=.
func (s *script) matching() func(labMessage) bool {
	kinds := map[string]Kind{"append": MsgAppend, "ack": MsgAppendAck, "state": MsgChannelState, "probe": MsgProbe, "reply": MsgProbeReply}
	from, hasFrom := s.value("from")
	to, hasTo := s.value("to")
	kind, hasKind := s.value("kind")
	return func(x labMessage) bool {
		if kind == "restart" {
			return x.msg.Restart && string(x.from.name) == from && string(x.to.name) == to
		}
		return (!hasFrom || string(x.from.name) == from) && (!hasTo || string(x.to.name) == to) && (!hasKind || x.msg.Kind == kinds[kind])
	}
}

// duration is the command's one argument.
func (s *script) duration() int64 {
	d, err := time.ParseDuration(s.words()[0])
	if err != nil {
		panic(err)
	}
	return d.Milliseconds()
}

// flag reads `on` or `off` behind a broker's name.
func (s *script) flag() (*labNode, bool) {
	n, rest := s.first()
	return n, len(rest) == 0 || rest[0] != "off"
}
