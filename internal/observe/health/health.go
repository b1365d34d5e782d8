package health

import (
	"cmp"
	"fmt"
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
	// Well: every acknowledged message is on all replicas that it should be on.
	Well State = iota
	// Degraded: messages are safe and served; one more fault may change that.
	Degraded
	// Unsafe: puts are refused, messages are not delivered, acknowledged messages are on fewer
	// disks than the topic's minimum, or a fault wakes a person: its alert is critical.
	Unsafe
)

var stateNames = []string{"well", "degraded", "unsafe"}

// String returns the state's name.
func (s State) String() string { return stateNames[s] }

// MarshalText gives the state's name in JSON and YAML.
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
	Where []string `json:"where,omitempty"` // the partitions ("orders/3") or brokers that it concerns
	Do    string   `json:"do"`              // the next step of an operator
}

// Report is the judgement of a cluster.
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
	// BrokerUnreachable is said of a broker that is registered, so that it runs or ended within the last seconds, and
	// does not answer the broker of the view.
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

// kind is an alarm about partitions, without its places.
type kind struct {
	state       State
	code        string
	one, many   string // after "1 partition" and "N partitions"
	instruction string
}

// The faults of a partition, the worst first: a partition is listed under the first that it has.
var kinds = []kind{
	{Unsafe, NoLeader, "has no live leader: it takes no puts and delivers nothing", "have no live leader: they take no puts and deliver nothing",
		"start the dead brokers. If their disks are lost: nsqctl recover topic --help"},
	{Unsafe, BelowMinimum, "refuses puts: fewer in-sync replicas answer than the minimum", "refuse puts: fewer in-sync replicas answer than the minimum",
		"start the dead brokers, or move the replicas: nsqctl topic move --help"},
	{Unsafe, OneDisk, "has its acknowledged messages on one live disk alone", "have their acknowledged messages on one live disk alone",
		"start the dead brokers before this one stops"},
	{Unsafe, Damaged, "has a damaged place that no replica could repair yet", "have a damaged place that no replica could repair yet",
		"keep the replicas' disks. docs/operations/failures.md, Disk"},
	{Degraded, UnderReplicated, "has fewer in-sync replicas than it should have", "have fewer in-sync replicas than they should have",
		"wait, if a replica catches up (nsqctl cluster status); start the dead brokers, or decommission them"},
}

// Assess judges a cluster as one broker sees it. silent are live brokers that did not give
// their statistics, with the reason; own are the reports of the others on themselves.
func Assess(v api.ClusterView, silent []string, own map[ident.Node]Own) Report {
	alive := Living(v)
	r := Report{Alarms: slices.Concat(partitionAlarms(v, alive), brokerAlarms(v, alive, own), ownAlarms(own))}
	if len(silent) > 0 {
		r.raise(Degraded, StatisticsSilent, silent, "no statistics from "+plural(len(silent), "broker", "brokers"), "ask these brokers themselves: "+askThem(v, silent))
	}
	switch {
	case Full(own):
		r.makeRoomFirst()
	case r.has(BrokerUnreachable) && !r.has(BrokerDead):
		r.reachFirst()
	case r.has(LowSpace) && !r.has(BrokerDead):
		r.remedy(roomDo, UnderReplicated)
	}
	slices.SortStableFunc(r.Alarms, func(a, b Alarm) int { return cmp.Compare(b.State, a.State) })
	if len(r.Alarms) > 0 {
		r.State = r.Alarms[0].State
	}
	r.Summary = summary(v, r, len(alive))
	return r
}

// askThem is the command that asks brokers whether they serve. silent are "name: reason".
func askThem(v api.ClusterView, silent []string) string {
	var commands []string
	for _, b := range v.Brokers {
		if slices.ContainsFunc(silent, func(s string) bool { return strings.HasPrefix(s, string(b.Name)+":") }) {
			commands = append(commands, "curl http://"+b.HTTPAddress+"/readyz")
		}
	}
	if len(commands) == 0 {
		return "GET /readyz"
	}
	return strings.Join(commands, "; ")
}

func (r *Report) raise(s State, code string, where []string, text, instruction string) {
	r.Alarms = append(r.Alarms, Alarm{s, code, text, where, instruction})
}

// Living returns the brokers that are alive.
func Living(v api.ClusterView) map[ident.Node]bool {
	alive := map[ident.Node]bool{}
	for _, b := range v.Brokers {
		if b.Alive {
			alive[b.Name] = true
		}
	}
	return alive
}

// liveISR counts the in-sync replicas on brokers that are alive.
func liveISR(p api.PartitionView, alive map[ident.Node]bool) (n int) {
	for _, m := range p.ISR {
		if alive[m] {
			n++
		}
	}
	return n
}

// Fault returns the code of a partition's worst fault; "" if it has none.
func Fault(p api.PartitionView, alive map[ident.Node]bool) string {
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
	case live < len(p.Replicas): // or the metadata has it under-replicated
		return UnderReplicated
	}
	return ""
}

// WorstFault returns the code of the worst fault of some partitions, and how many have it; "" if none
// has a fault.
func WorstFault(partitions []api.PartitionView, alive map[ident.Node]bool) (code string, count int) {
	faulty := map[string]int{}
	for _, p := range partitions {
		if code := Fault(p, alive); code != "" {
			faulty[code]++
		}
	}
	for _, k := range kinds {
		if n := faulty[k.code]; n > 0 {
			return k.code, n
		}
	}
	return "", 0
}

func partitionAlarms(v api.ClusterView, alive map[ident.Node]bool) (out []Alarm) {
	places := map[string][]string{}
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			if code := Fault(p, alive); code != "" {
				places[code] = append(places[code], place(t, p))
			}
		}
	}
	for _, k := range kinds {
		where := places[k.code]
		if len(where) == 0 {
			continue
		}
		text := plural(len(where), "partition "+k.one, "partitions "+k.many)
		out = append(out, Alarm{k.state, k.code, text, where, k.instruction})
	}
	return out
}

func place(t api.TopicView, p api.PartitionView) string {
	return fmt.Sprintf("%s/%d", t.Topic, p.Partition)
}

func brokerAlarms(v api.ClusterView, alive map[ident.Node]bool, own map[ident.Node]Own) []Alarm {
	var r Report
	var dead, unreachable, hang []string
	hung := Degraded // others have taken its leaderships, or will
	for _, b := range v.Brokers {
		switch {
		case b.Hangs || own[b.Name].Hangs():
			hang = append(hang, string(b.Name))
			if b.Alive && (b.Hangs || own[b.Name].busy() > othersLead) { // no minimum of others continues: puts wait for it
				hung = Unsafe
			}
		case Unreachable(b):
			unreachable = append(unreachable, string(b.Name))
		case !b.Alive:
			dead = append(dead, string(b.Name))
		}
		if b.Leaving {
			if stuck := stuckOn(v, b.Name); stuck != "" {
				r.raise(Degraded, LeavingStuck, []string{string(b.Name)}, fmt.Sprintf("broker %s cannot leave: %s", b.Name, stuck),
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
			"brokers hang: their disks or core loops are stuck, or their stores have failed"), hangsDo)
	}
	r.lowSpace(v, alive)
	if silence := time.Duration(v.MetadataUnheardMS) * time.Millisecond; silence > 0 {
		r.raise(Degraded, MetadataSilent, []string{string(v.Self)}, fmt.Sprintf("the metadata has not answered %s for %s: no leader can be replaced, nothing can be created or changed",
			v.Self, silence.Round(time.Second)), "start the missing members of etcd, or mend the network to them")
	} else if v.Controller == "" && len(alive) > 0 {
		r.raise(Degraded, NoController, nil, "no broker is the controller: no replica is moved or replaced", "wait some seconds; then restart the broker whose log reports errors of the controller")
	}
	return r.Alarms
}

// dead reports the brokers that are not registered. One that neither answers nor refuses connections may hang: a process
// that is started beside it finds its data path in use.
func (r *Report) dead(v api.ClusterView, dead []string) {
	var silent []string
	for _, b := range v.Brokers {
		if b.Silent && slices.Contains(dead, string(b.Name)) {
			silent = append(silent, fmt.Sprintf("%s at %s", b.Name, b.RPCAddress))
		}
	}
	text, do := plural(len(dead), "broker is dead", "brokers are dead"), "start it; if it runs, its log has the reason"
	if len(silent) > 0 {
		text += ": " + strings.Join(silent, ", ") + map[bool]string{true: " does not answer", false: " do not answer"}[len(silent) == 1]
		do = "if the process of a broker that does not answer still runs, kill it; then start it. Its log has the reason; if its host is cut off, mend the network"
	}
	r.raise(Degraded, BrokerDead, dead, text, do+". If its disk is lost, start it with an empty data path; if it never returns: nsqctl broker decommission --help")
}

// roomDo is the remedy of LockstepDiskReserveReached and of LockstepPutsLackSpace.
const roomDo = "free or add disk space (nsqctl broker list has the free bytes): docs/operations/failures.md, Disk"

// lowSpace reports brokers below their disk reserve. Puts are refused only where too few of the in-sync replicas have room.
func (r *Report) lowSpace(v api.ClusterView, alive map[ident.Node]bool) {
	var where []string
	low := map[ident.Node]bool{}
	for _, b := range v.Brokers {
		if low[b.Name] = b.LowSpace; b.LowSpace {
			where = append(where, string(b.Name))
		}
	}
	if len(where) == 0 {
		return
	}
	refuse := 0
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			if lacksRoom(p, alive, low) {
				refuse++
			}
		}
	}
	text := plural(len(where), "broker is below its disk reserve: ", "brokers are below their disk reserve: ")
	if refuse > 0 {
		r.raise(Unsafe, LowSpace, where, text+plural(refuse, "partition refuses puts, for too few of its replicas have room", "partitions refuse puts, for too few of their replicas have room"), roomDo)
		return
	}
	r.raise(Degraded, LowSpace, where, text+"puts are answered, other replicas take them", roomDo)
}

// lacksRoom reports whether puts to a partition are refused because of full disks.
func lacksRoom(p api.PartitionView, alive, low map[ident.Node]bool) bool {
	roomy := 0
	for _, n := range p.ISR {
		if alive[n] && !low[n] {
			roomy++
		}
	}
	return roomy < p.MinInSync && slices.ContainsFunc(p.ISR, func(n ident.Node) bool { return low[n] })
}

// Publishing says whether clients can publish through the broker of the view.
func Publishing(v api.ClusterView) (State, string) {
	alive, low, hangs := Living(v), map[ident.Node]bool{}, map[ident.Node]bool{}
	for _, b := range v.Brokers {
		low[b.Name], hangs[b.Name] = b.LowSpace, b.Hangs
	}
	all, refuse := 0, 0
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			all++
			if f := Fault(p, alive); f == NoLeader || f == BelowMinimum || hangs[p.Leader] || lacksRoom(p, alive, low) {
				refuse++
			}
		}
	}
	cut := ""
	if v.MetadataUnheardMS > 0 && len(alive) == 1 && len(v.Brokers) > 1 {
		cut = fmt.Sprintf(". If %s alone is cut off, the other brokers take messages", v.Self)
	}
	switch {
	case refuse > 0 && refuse == all:
		return Unsafe, fmt.Sprintf("no: no partition takes messages through %s%s", v.Self, cut)
	case refuse > 0:
		return Unsafe, fmt.Sprintf("in part: %d of %s take no messages through %s%s", refuse, plural(all, "partition", "partitions"), v.Self, cut)
	case v.MetadataUnheardMS > 0:
		return Degraded, "yes, to the topics that exist: none can be created"
	case all == 0:
		return Well, "yes: there is no topic yet"
	}
	return Well, "yes: every partition takes messages"
}

// Unreachable reports whether a broker is registered with the cluster and does not answer the broker of the view.
func Unreachable(b api.BrokerView) bool { return !b.Alive && b.Incarnation != 0 }

// unreachable reports brokers that are registered and do not answer. If the broker of the view reaches nobody, the
// fault is on its side, and it can neither lead nor follow.
func (r *Report) unreachable(v api.ClusterView, where []string) {
	if len(where) > 1 && len(where) == len(v.Brokers)-1 {
		r.raise(Unsafe, BrokerUnreachable, []string{string(v.Self)}, fmt.Sprintf("%s reaches none of the other brokers, which are registered: they have just ended, or it is cut off from them", v.Self),
			reachDo+". Ask another broker: this one does not have the present state of the others")
		return
	}
	text := plural(len(where), "broker is registered and does not answer ", "brokers are registered and do not answer ")
	r.raise(Degraded, BrokerUnreachable, where, text+string(v.Self), reachDo)
}

const reachDo = "mend the network between the brokers (--rpc-address, a firewall); start the brokers that have ended; kill those that run and do not answer, then start them"

// reachFirst changes the remedies of partitions if no broker is known to be dead. The unreachable brokers may run, and
// a replica whose disk is intact must not be given up.
func (r *Report) reachFirst() { r.remedy(reachDo, NoLeader, BelowMinimum, OneDisk, UnderReplicated) }

// remedy changes the remedy of some alarms.
func (r *Report) remedy(do string, codes ...string) {
	for i, a := range r.Alarms {
		if slices.Contains(codes, a.Code) {
			r.Alarms[i].Do = do
		}
	}
}

func (r *Report) has(code string) bool {
	return slices.ContainsFunc(r.Alarms, func(a Alarm) bool { return a.Code == code })
}

// hangsDo is the remedy of LockstepDiskStalled and of LockstepCoreLoopStalled.
const hangsDo = "look at its disk (dmesg, SMART, the volume's provider) and its processor: it joins again by itself. Its log says which (stalled); if it has ended, start it again"

// drained reports a broker that an operator has drained. That is no fault, but the operator may
// forget it.
func (r *Report) drained(v api.ClusterView, b api.BrokerView, alive map[ident.Node]bool) {
	if b.Drain == "" {
		return
	}
	where := []string{string(b.Name)}
	stuck := ""
	if b.Drain == drainReplicas {
		stuck = stuckOn(v, b.Name)
	}
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			if stuck == "" && b.Alive && p.Leader == b.Name && !otherLeader(v, p, alive) {
				stuck = place(t, p) + " has no other live in-sync replica that could lead"
			}
		}
	}
	if stuck != "" {
		r.raise(Degraded, DrainStuck, where, fmt.Sprintf("broker %s cannot be drained: %s", b.Name, stuck),
			"start the dead brokers, add a broker, or end the drain: nsqctl broker undrain "+string(b.Name))
		return
	}
	r.raise(Well, Drained, where, fmt.Sprintf("broker %s is drained (%s): it leads nothing and gets no replica", b.Name, b.Drain),
		"when its maintenance is done: nsqctl broker undrain "+string(b.Name))
}

// drainReplicas is metadata.DrainReplicas: the drain of a broker that moves its replicas, too.
const drainReplicas = "replicas"

// otherLeader reports whether an in-sync replica other than the leader lives and is not drained.
func otherLeader(v api.ClusterView, p api.PartitionView, alive map[ident.Node]bool) bool {
	return slices.ContainsFunc(v.Brokers, func(b api.BrokerView) bool {
		return b.Name != p.Leader && alive[b.Name] && b.Drain == "" && slices.Contains(p.ISR, b.Name)
	})
}

// stuckOn returns the reason why a broker's replicas cannot be moved away, "" if they can.
func stuckOn(v api.ClusterView, n ident.Node) string {
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
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
	}
	return ""
}

func summary(v api.ClusterView, r Report, alive int) string {
	partitions := 0
	for _, t := range v.Topics {
		partitions += len(t.Partitions)
	}
	text := fmt.Sprintf("%s: %d of %s, %s, %s", r.State, alive, plural(len(v.Brokers), "broker alive", "brokers alive"),
		plural(len(v.Topics), "topic", "topics"), plural(partitions, "partition", "partitions"))
	var faults []string
	for _, a := range r.Alarms {
		faults = append(faults, a.Text)
	}
	if len(faults) > 0 {
		text += "; " + strings.Join(faults, "; ")
	}
	return text
}

// plural returns "1 one" or "n many".
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// SafeToStop returns the reasons against stopping a broker now; none if no partition would lose
// its leader permanently, fall below its minimum, or have one live disk left. It is an error if the
// cluster has no such broker.
func SafeToStop(v api.ClusterView, n ident.Node) ([]string, error) {
	i := slices.IndexFunc(v.Brokers, func(b api.BrokerView) bool { return b.Name == n })
	if i < 0 {
		return nil, fmt.Errorf("the cluster %s has no broker %q", v.Cluster, n)
	}
	if v.MetadataUnheardMS > 0 {
		return []string{"the metadata does not answer: no other broker could take the leaderships of " + string(n)}, nil
	}
	if !v.Brokers[i].Alive {
		return nil, nil // the broker is not alive: stopping it harms nothing
	}
	reasons := undrained(v, v.Brokers[i])
	alive := Living(v)
	delete(alive, n)
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			if !slices.Contains(p.Replicas, n) && !slices.Contains(p.ISR, n) {
				continue
			}
			if why := without(p, alive); why != "" {
				reasons = append(reasons, place(t, p)+" "+why)
			}
		}
	}
	return reasons, nil
}

// undrained is the reason against stopping a broker whose drain is under way; none if it has no
// drain, or if the drain is done.
func undrained(v api.ClusterView, b api.BrokerView) []string {
	leads, replicas := Load(v, b.Name)
	switch {
	case b.Drain != "" && leads > 0:
		return []string{fmt.Sprintf("its drain is not finished: it leads %s", plural(leads, "partition", "partitions"))}
	case b.Drain == drainReplicas && replicas > 0:
		return []string{fmt.Sprintf("its drain is not finished: it has %s", plural(replicas, "replica", "replicas"))}
	}
	return nil
}

// Load counts the partitions that a broker leads, and its replicas.
func Load(v api.ClusterView, n ident.Node) (leads, replicas int) {
	for _, t := range v.Topics {
		for _, p := range t.Partitions {
			if p.Leader == n {
				leads++
			}
			if slices.Contains(p.Replicas, n) || slices.Contains(p.ISR, n) {
				replicas++
			}
		}
	}
	return leads, replicas
}

// without returns the harm to a partition if only the given brokers are alive; "" if none.
func without(p api.PartitionView, alive map[ident.Node]bool) string {
	left := liveISR(p, alive)
	switch {
	case left == 0:
		return "would have no live in-sync replica: it would neither take puts nor deliver"
	case left < p.MinInSync:
		return fmt.Sprintf("would have %d of %d in-sync replicas that its minimum asks for: it would refuse puts", left, p.MinInSync)
	case left == 1 && len(p.Replicas) > 2:
		return "would have its acknowledged messages on one live disk alone"
	}
	return ""
}
