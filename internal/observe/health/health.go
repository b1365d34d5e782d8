package health

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// State is the severity of a fault, or of a cluster's faults. A greater value is worse.
type State int

// The states of a cluster, and of an alarm.
const (
	// Healthy: every acknowledged message is on all of its replicas.
	Healthy State = iota
	// Degraded: messages are safe and served; one more fault may change that.
	Degraded
	// Unsafe: messages are refused or not delivered, acknowledged messages are on fewer disks than the topic's minimum, or the
	// alert of the fault is critical.
	Unsafe
)

var stateNames = []string{"healthy", "degraded", "unsafe"}

// String returns the state's name.
func (s State) String() string { return stateNames[s] }

// MarshalText returns the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *State) UnmarshalText(text []byte) error {
	i := slices.Index(stateNames, string(text))
	if i < 0 {
		return fmt.Errorf("health: no state %q", text)
	}
	*s = State(i)
	return nil
}

// Alarm is one fault.
type Alarm struct {
	State State    `json:"state"`
	Code  string   `json:"code"`            // stays the same over releases; for scripts
	Text  string   `json:"text"`            // the fault in a sentence
	Where []string `json:"where,omitempty"` // the partitions ("orders/3"), channels or brokers
	Do    string   `json:"do"`              // the operator's next step
}

// Report is the assessment of a cluster.
type Report struct {
	State   State   `json:"state"`
	Summary string  `json:"summary"` // one line
	Alarms  []Alarm `json:"alarms"`  // the worst first
}

// Codes of alarms.
const (
	NoLeader        = "no_leader"
	BelowMinimum    = "below_minimum"
	OneDisk         = "one_disk"
	Damaged         = "damaged"
	UnderReplicated = "under_replicated"
	BrokerDead      = "broker_dead"
	BrokerHangs     = "broker_hangs"
	// BrokerUnreachable: a broker is registered, so it runs or ended within the last seconds, and it does not answer the broker
	// of the view.
	BrokerUnreachable = "broker_unreachable"
	LowSpace          = "low_space"
	MetadataSilent    = "metadata_silent"
	StatisticsSilent  = "statistics_silent"
	NoController      = "no_controller"
	LeavingStuck      = "leaving_stuck"
	NoBrokers         = "no_brokers"
	Drained           = "drained"
	DrainStuck        = "drain_stuck"
)

// partitionFaults are the faults of a partition, the worst first: a partition is counted only under the first fault
// that it has.
var partitionFaults = []struct {
	state     State
	code      string
	one, many string // after "1 partition" and "N partitions"
}{
	{Unsafe, NoLeader, "has no live leader: it accepts no messages and delivers none",
		"have no live leader: they accept no messages and deliver none"},
	{Unsafe, BelowMinimum, "refuses messages: fewer in-sync replicas answer than the minimum",
		"refuse messages: fewer in-sync replicas answer than the minimum"},
	{Unsafe, OneDisk, "has its acknowledged messages on only one live disk", "have their acknowledged messages on only one live disk"},
	{Unsafe, Damaged, "has a damaged place that no replica could repair yet", "have a damaged place that no replica could repair yet"},
	{Degraded, UnderReplicated, "has fewer in-sync replicas than it should have", "have fewer in-sync replicas than they should have"},
}

// Assess judges a cluster as one broker sees it. silent are live brokers that did not return their statistics, as
// "name: reason"; own are the other brokers' reports on themselves.
func Assess(v api.ClusterView, silent []string, own map[ident.Node]Own) Report {
	alive := Living(v)
	var r Report
	r.partitions(v, alive)
	r.brokers(v, alive, own)
	r.reported(own)
	if len(silent) > 0 {
		r.raise(Degraded, StatisticsSilent, silent, "no statistics from "+plural(len(silent), "broker", "brokers"),
			"ask these brokers directly: "+readyCommands(v, silent))
	}
	switch {
	case Full(own): // a broker that starts now cannot register
		r.instead(fullDo, NoLeader, BelowMinimum, OneDisk, UnderReplicated, NoBrokers, BrokerDead, MetadataSilent)
	case r.has(BrokerUnreachable) && !r.has(BrokerDead):
		// The unreachable brokers may still run, and a replica with an intact disk must not be discarded.
		r.instead(reachDo, NoLeader, BelowMinimum, OneDisk, UnderReplicated)
	case r.has(LowSpace) && !r.has(BrokerDead):
		r.instead(actions[LowSpace], UnderReplicated)
	}
	slices.SortStableFunc(r.Alarms, func(a, b Alarm) int { return cmp.Compare(b.State, a.State) })
	if len(r.Alarms) > 0 {
		r.State = r.Alarms[0].State
	}
	r.Summary = summary(v, r, len(alive))
	return r
}

// readyCommands are commands with which the operator checks whether silent brokers serve.
func readyCommands(v api.ClusterView, silent []string) string {
	var commands []string
	for _, b := range v.Brokers {
		if slices.ContainsFunc(silent, func(s string) bool { return strings.HasPrefix(s, string(b.Name)+":") }) {
			commands = append(commands, "curl http://"+b.HTTPAddress+"/readyz")
		}
	}
	return cmp.Or(strings.Join(commands, "; "), "GET /readyz")
}

func (r *Report) raise(s State, code string, where []string, text, do string) {
	r.Alarms = append(r.Alarms, Alarm{s, code, text, where, do})
}

// instead changes the next step of some alarms.
func (r *Report) instead(do string, codes ...string) {
	for i, a := range r.Alarms {
		if slices.Contains(codes, a.Code) {
			r.Alarms[i].Do = do
		}
	}
}

func (r *Report) has(code string) bool {
	return slices.ContainsFunc(r.Alarms, func(a Alarm) bool { return a.Code == code })
}

// Living returns the brokers that are alive.
func Living(v api.ClusterView) map[ident.Node]bool {
	return brokersThat(v, func(b *api.BrokerView) bool { return b.Alive })
}

func brokersThat(v api.ClusterView, match func(*api.BrokerView) bool) map[ident.Node]bool {
	found := map[ident.Node]bool{}
	for i := range v.Brokers {
		if match(&v.Brokers[i]) {
			found[v.Brokers[i].Name] = true
		}
	}
	return found
}

func eachPartition(v api.ClusterView) iter.Seq2[*api.TopicView, *api.PartitionView] {
	return func(yield func(*api.TopicView, *api.PartitionView) bool) {
		for i := range v.Topics {
			for j := range v.Topics[i].Partitions {
				if !yield(&v.Topics[i], &v.Topics[i].Partitions[j]) {
					return
				}
			}
		}
	}
}

func liveISR(p *api.PartitionView, alive map[ident.Node]bool) (n int) {
	for _, m := range p.ISR {
		if alive[m] {
			n++
		}
	}
	return n
}

// Fault returns the code of a partition's worst fault, "" without one.
func Fault(p *api.PartitionView, alive map[ident.Node]bool) string {
	live := liveISR(p, alive)
	switch {
	case !alive[p.Leader]:
		return NoLeader
	case live < p.MinInSync:
		return BelowMinimum
	case live == 1 && len(p.Replicas) > 1:
		return OneDisk
	case len(p.Damaged) > 0:
		return Damaged
	case live < len(p.Replicas): // or the metadata shows it as under-replicated
		return UnderReplicated
	}
	return ""
}

// WorstFault returns the code of the worst fault of some partitions, and how many have it; "" without a fault.
func WorstFault(partitions []api.PartitionView, alive map[ident.Node]bool) (code string, count int) {
	faulty := map[string]int{}
	for i := range partitions {
		if code := Fault(&partitions[i], alive); code != "" {
			faulty[code]++
		}
	}
	for _, f := range partitionFaults {
		if n := faulty[f.code]; n > 0 {
			return f.code, n
		}
	}
	return "", 0
}

func (r *Report) partitions(v api.ClusterView, alive map[ident.Node]bool) {
	where := map[string][]string{}
	for t, p := range eachPartition(v) {
		if code := Fault(p, alive); code != "" {
			where[code] = append(where[code], place(t, p))
		}
	}
	for _, f := range partitionFaults {
		if faulty := where[f.code]; len(faulty) > 0 {
			r.raise(f.state, f.code, faulty, plural(len(faulty), "partition "+f.one, "partitions "+f.many), actions[f.code])
		}
	}
}

func place(t *api.TopicView, p *api.PartitionView) string {
	return fmt.Sprintf("%s/%d", t.Topic, p.Partition)
}

func (r *Report) brokers(v api.ClusterView, alive map[ident.Node]bool, own map[ident.Node]Own) {
	var dead, unreachable, hang []string
	hung := Degraded // other brokers have taken over its leaderships, or will
	for i := range v.Brokers {
		b := &v.Brokers[i]
		name := []string{string(b.Name)}
		switch {
		case b.Hangs || own[b.Name].Hangs():
			hang = append(hang, name...)
			if b.Alive && (b.Hangs || own[b.Name].busy() > othersLead) { // too few other brokers can take over, so messages wait for it
				hung = Unsafe
			}
		case Unreachable(b):
			unreachable = append(unreachable, name...)
		case !b.Alive:
			dead = append(dead, name...)
		}
		if b.Leaving {
			if stuck := stuckOn(v, b.Name); stuck != "" {
				r.raise(Degraded, LeavingStuck, name, fmt.Sprintf("broker %s cannot leave: %s", b.Name, stuck),
					"add a broker, or lower the replication factor: nsqctl topic replication --help")
			}
		}
		r.drained(v, b, alive)
	}
	switch {
	case len(alive) == 0:
		r.raise(Unsafe, NoBrokers, dead, "no broker of the cluster is registered", "start the brokers: docs/operations/run.md, Start")
	case len(dead) > 0:
		r.dead(v, dead)
	}
	if len(unreachable) > 0 {
		r.unreachable(v, unreachable)
	}
	if len(hang) > 0 {
		r.raise(hung, BrokerHangs, hang, plural(len(hang), "broker hangs: its disk or a core loop is stuck, or its store has failed",
			"brokers hang: their disks or core loops are stuck, or their stores have failed"), actions[BrokerHangs])
	}
	r.lowSpace(v, alive)
	switch silence := time.Duration(v.MetadataUnheardMS) * time.Millisecond; {
	case silence > 0:
		r.raise(Degraded, MetadataSilent, []string{string(v.Self)}, fmt.Sprintf("%s has had no answer from etcd for %s: no leader can be "+
			"replaced, and nothing can be created or changed", v.Self, silence.Round(time.Second)), actions[MetadataSilent])
	case v.Controller == "" && len(alive) > 0:
		r.raise(Degraded, NoController, nil, "no broker is the controller: no replica is moved or replaced",
			"wait some seconds; then restart the broker whose log reports errors of the controller")
	}
}

// dead reports the brokers that are not registered. A broker that neither answers nor refuses connections may hang: a
// new process on the same machine would find the data path in use.
func (r *Report) dead(v api.ClusterView, dead []string) {
	var silent []string
	for _, b := range v.Brokers {
		if b.Silent && slices.Contains(dead, string(b.Name)) {
			silent = append(silent, fmt.Sprintf("%s at %s", b.Name, b.RPCAddress))
		}
	}
	text, do := plural(len(dead), "broker is dead", "brokers are dead"), actions[BrokerDead]
	if len(silent) > 0 {
		text += ": " + strings.Join(silent, ", ") + map[bool]string{true: " does not answer", false: " do not answer"}[len(silent) == 1]
		do = "if the process of a broker that does not answer still runs, kill it. If its host is unreachable, repair the network. Then " + do
	}
	r.raise(Degraded, BrokerDead, dead, text, do)
}

// lowSpace reports brokers below their disk reserve. Messages are refused only where too few in-sync replicas have room.
func (r *Report) lowSpace(v api.ClusterView, alive map[ident.Node]bool) {
	low := lowSpace(v)
	if len(low) == 0 {
		return
	}
	var where []string
	for _, n := range slices.Sorted(maps.Keys(low)) {
		where = append(where, string(n))
	}
	refuse := 0
	for _, p := range eachPartition(v) {
		if lacksRoom(p, alive, low) {
			refuse++
		}
	}
	text := plural(len(where), "broker is below its disk reserve: ", "brokers are below their disk reserve: ")
	if refuse > 0 {
		r.raise(Unsafe, LowSpace, where, text+plural(refuse, "partition refuses messages, because too few of its replicas have room",
			"partitions refuse messages, because too few of their replicas have room"), actions[LowSpace])
		return
	}
	r.raise(Degraded, LowSpace, where, text+"other replicas accept messages", actions[LowSpace])
}

func lowSpace(v api.ClusterView) map[ident.Node]bool {
	return brokersThat(v, func(b *api.BrokerView) bool { return b.LowSpace })
}

// lacksRoom reports whether messages to a partition are refused because of full disks.
func lacksRoom(p *api.PartitionView, alive, low map[ident.Node]bool) bool {
	roomy := 0
	for _, n := range p.ISR {
		if alive[n] && !low[n] {
			roomy++
		}
	}
	return roomy < p.MinInSync && slices.ContainsFunc(p.ISR, func(n ident.Node) bool { return low[n] })
}

// Publishing reports whether clients can publish through the broker of the view.
func Publishing(v api.ClusterView) (State, string) {
	alive, low, hangs := Living(v), lowSpace(v), brokersThat(v, func(b *api.BrokerView) bool { return b.Hangs })
	all, refuse := 0, 0
	for _, p := range eachPartition(v) {
		all++
		if f := Fault(p, alive); f == NoLeader || f == BelowMinimum || hangs[p.Leader] || lacksRoom(p, alive, low) {
			refuse++
		}
	}
	cut := ""
	if v.MetadataUnheardMS > 0 && len(alive) == 1 && len(v.Brokers) > 1 {
		cut = fmt.Sprintf(". If only %s is cut off, the other brokers accept messages", v.Self)
	}
	switch {
	case refuse > 0 && refuse == all:
		return Unsafe, fmt.Sprintf("no: no partition accepts messages through %s%s", v.Self, cut)
	case refuse > 0:
		return Unsafe, fmt.Sprintf("in part: %d of %s accept no messages through %s%s", refuse, plural(all, "partition", "partitions"), v.Self, cut)
	case v.MetadataUnheardMS > 0:
		return Degraded, "yes, to existing topics: none can be created"
	case all == 0:
		return Healthy, "yes: there is no topic yet"
	}
	return Healthy, "yes: every partition accepts messages"
}

// Unreachable reports whether a broker is registered with the cluster and does not answer the broker of the view.
func Unreachable(b *api.BrokerView) bool { return !b.Alive && b.Incarnation != 0 }

// unreachable reports brokers that are registered and do not answer. If the broker of the view reaches no other broker,
// the fault is on its own side, and it can neither lead nor follow.
func (r *Report) unreachable(v api.ClusterView, where []string) {
	if len(where) > 1 && len(where) == len(v.Brokers)-1 {
		r.raise(Unsafe, BrokerUnreachable, []string{string(v.Self)}, fmt.Sprintf("%s reaches none of the other brokers, which are registered: "+
			"they have just ended, or it is cut off from them", v.Self), reachDo+". Ask another broker: this one does not have the others' current state")
		return
	}
	text := plural(len(where), "broker is registered and does not answer ", "brokers are registered and do not answer ")
	r.raise(Degraded, BrokerUnreachable, where, text+string(v.Self), reachDo)
}

const reachDo = "repair the network between the brokers (--rpc-address, a firewall); start the brokers that have ended; " +
	"kill those that run and do not answer, then start them"

// drained reports a broker that an operator has drained. That is not a fault, but it is reported because the operator
// may forget it.
func (r *Report) drained(v api.ClusterView, b *api.BrokerView, alive map[ident.Node]bool) {
	if b.Drain == "" {
		return
	}
	stuck, where := "", []string{string(b.Name)}
	if b.Drain == drainReplicas {
		stuck = stuckOn(v, b.Name)
	}
	for t, p := range eachPartition(v) {
		if stuck == "" && b.Alive && p.Leader == b.Name && !otherLeader(v, p, alive) {
			stuck = place(t, p) + " has no other live in-sync replica that could lead"
		}
	}
	if stuck != "" {
		r.raise(Degraded, DrainStuck, where, fmt.Sprintf("broker %s cannot be drained: %s", b.Name, stuck),
			"start the dead brokers, add a broker, or end the drain: nsqctl broker undrain "+string(b.Name))
		return
	}
	r.raise(Healthy, Drained, where, fmt.Sprintf("broker %s is drained (%s): it leads nothing and gets no replica", b.Name, b.Drain),
		"when its maintenance is done: nsqctl broker undrain "+string(b.Name))
}

// drainReplicas is metadata.DrainReplicas: the drain of a broker that also moves its replicas.
const drainReplicas = "replicas"

// otherLeader reports whether an in-sync replica other than the leader is alive and not drained.
func otherLeader(v api.ClusterView, p *api.PartitionView, alive map[ident.Node]bool) bool {
	return slices.ContainsFunc(v.Brokers, func(b api.BrokerView) bool {
		return b.Name != p.Leader && alive[b.Name] && b.Drain == "" && slices.Contains(p.ISR, b.Name)
	})
}

// stuckOn returns the reason why a broker's replicas cannot be moved away, "" if they can.
func stuckOn(v api.ClusterView, n ident.Node) string {
	for t, p := range eachPartition(v) {
		staying := 0 // brokers that may have a replica of it
		for _, b := range v.Brokers {
			if !b.Leaving && b.Drain != drainReplicas && (b.Drain == "" || slices.Contains(p.Replicas, b.Name)) {
				staying++
			}
		}
		if slices.Contains(p.Replicas, n) && t.ReplicationFactor > staying {
			return fmt.Sprintf("%s has the replication factor %d, and %s", place(t, p), t.ReplicationFactor, plural(staying, "broker stays", "brokers stay"))
		}
	}
	return ""
}

func summary(v api.ClusterView, r Report, alive int) string {
	partitions := 0
	for range eachPartition(v) {
		partitions++
	}
	text := fmt.Sprintf("%s: %d of %s, %s, %s", r.State, alive, plural(len(v.Brokers), "broker alive", "brokers alive"),
		plural(len(v.Topics), "topic", "topics"), plural(partitions, "partition", "partitions"))
	for _, a := range r.Alarms {
		text += "; " + a.Text
	}
	return text
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// SafeToStop returns the reasons against stopping a broker now: partitions that would permanently lose their leader, fall below
// their minimum, or have one live disk left. It is an error if the cluster has no such broker.
func SafeToStop(v api.ClusterView, n ident.Node) (reasons []string, err error) {
	i := slices.IndexFunc(v.Brokers, func(b api.BrokerView) bool { return b.Name == n })
	switch {
	case i < 0:
		return nil, fmt.Errorf("the cluster %s has no broker %q", v.Cluster, n)
	case v.MetadataUnheardMS > 0:
		return []string{"etcd does not answer: no other broker could take the leaderships of " + string(n)}, nil
	case !v.Brokers[i].Alive:
		return nil, nil
	}
	leads, replicas := Load(v, n)
	switch drain := v.Brokers[i].Drain; {
	case drain != "" && leads > 0:
		reasons = append(reasons, "its drain is not finished: it leads "+plural(leads, "partition", "partitions"))
	case drain == drainReplicas && replicas > 0:
		reasons = append(reasons, "its drain is not finished: it has "+plural(replicas, "replica", "replicas"))
	}
	alive := Living(v)
	delete(alive, n)
	for t, p := range eachPartition(v) {
		if !slices.Contains(p.Replicas, n) && !slices.Contains(p.ISR, n) {
			continue
		}
		if harm := harmOf(p, alive); harm != "" {
			reasons = append(reasons, place(t, p)+" "+harm)
		}
	}
	return reasons, nil
}

// Load counts the partitions that a broker leads, and its replicas.
func Load(v api.ClusterView, n ident.Node) (leads, replicas int) {
	for _, p := range eachPartition(v) {
		if p.Leader == n {
			leads++
		}
		if slices.Contains(p.Replicas, n) || slices.Contains(p.ISR, n) {
			replicas++
		}
	}
	return leads, replicas
}

// harmOf returns the harm to a partition if only the given brokers are alive, "" without any.
func harmOf(p *api.PartitionView, alive map[ident.Node]bool) string {
	left := liveISR(p, alive)
	switch {
	case left == 0:
		return "would have no live in-sync replica: it would neither accept nor deliver messages"
	case left < p.MinInSync:
		return fmt.Sprintf("would have %d of %d in-sync replicas that its minimum requires: it would refuse messages", left, p.MinInSync)
	case left == 1 && len(p.Replicas) > 2:
		return "would have its acknowledged messages on only one live disk"
	}
	return ""
}
