package cost

import "fmt"

// row is one workload. A burst is a fixed number of operations of each connection.
type row struct {
	name        string
	connections int
	outstanding int  // commands in flight on each connection; of a consumer: its RDY
	batch       int  // messages of a command: PUB, or MPUB above 1
	topics      int  // used in turn
	consume     bool // finishes a backlog, which is published before the turn
	burst       int  // commands, or finished messages, of each connection in a burst: 10 to 20 ms
}

// rows are the workloads that the guard judges.
var rows = [...]row{
	{name: "lone-put", connections: 1, outstanding: 1, batch: 1, topics: 1, burst: 120},
	{name: "put-64", connections: 64, outstanding: 1, batch: 1, topics: 1, burst: 10},
	{name: "pipeline-8x100", connections: 8, outstanding: 100, batch: 1, topics: 1, burst: 1000},
	{name: "mpub-8x100", connections: 8, outstanding: 2, batch: 100, topics: 1, burst: 10},
	{name: "consume-4", connections: 4, outstanding: 250, batch: 1, topics: 1, consume: true, burst: 2000},
	{name: "topics-200", connections: 20, outstanding: 1, batch: 1, topics: 200, burst: 10},
}

// messages returns the number of messages of one burst.
func (r row) messages() int { return r.connections * r.burst * r.batch }

// names returns the names of the row's topics.
func (r row) names() (all []string) {
	for i := range r.topics {
		all = append(all, fmt.Sprintf("%s_%d", r.name, i))
	}
	return all
}

// backlog returns the row that publishes, in one burst, what a consuming row finishes in one turn.
func (r row) backlog() row {
	const connections, batch = 4, 100
	return row{name: r.name, connections: connections, outstanding: 4, batch: batch, topics: 1, burst: turnBursts * r.messages() / connections / batch}
}
