package model

// Config is one bounded cluster. The zero value of a bound forbids that fault.
type Config struct {
	Name     string
	Replicas int // 1 to 3
	MinISR   int
	Away     bool // the last replica is neither running nor in the in-sync set at first

	Puts    uint8 // requests of clients, in order
	Retries uint8 // repeats of a request, by whatever broker thinks it leads
	Changes uint8 // changes of the channels' state
	// Identified: the messages have ids, and repeats are recognised by them.
	Identified bool

	Ticks     uint8 // of all brokers together
	Crashes   uint8 // a process ends, its unsynced writes are lost
	Torn      bool  // a crash may also keep a prefix of the unsynced writes
	Wipes     uint8 // a crash that loses the store as well
	Restores  uint8 // a crash after which the store is an earlier one
	Expiries  uint8 // a running process loses its registration
	Suspects  uint8 // a running leader finds a running peer dead
	Losses    uint8 // messages lost
	Doubles   uint8 // messages that arrive twice
	Reorders  uint8 // messages that overtake
	CASLost   uint8 // answers of transactions lost: landed, refused, or still to land
	HandOvers uint8

	EagerSync bool // every submission is durable at once
	Depth     int  // messages in flight on one link, at most 4; more are lost
	MaxEpoch  uint64
	MaxCAS    int64 // transactions that land

	MaxStates int // 0 = all

	unasserted bool     // the machine is a mutant: only P1 to P11 may judge it
	given      []action // happens before the search begins: such states are too deep to be found from rest
}

// the budgets of a world, by index.
const (
	putsLeft = iota
	retriesLeft
	changesLeft
	ticksLeft
	crashesLeft
	wipesLeft
	restoresLeft
	expiriesLeft
	suspectsLeft
	lossesLeft
	doublesLeft
	reordersLeft
	casLostLeft
	handOversLeft
	budgets
)

func (c *Config) budget() [budgets]uint8 {
	return [budgets]uint8{
		c.Puts, c.Retries, c.Changes, c.Ticks, c.Crashes, c.Wipes, c.Restores, c.Expiries,
		c.Suspects, c.Losses, c.Doubles, c.Reorders, c.CASLost, c.HandOvers,
	}
}

// maxReplicas and maxDepth bound the arrays of a world.
const (
	maxReplicas = 3
	maxDepth    = 4
)

// A Tick passes every deadline of shortMS, and only two or three ticks one of
// graceMS.
const (
	tickMS  = 10
	shortMS = 5
	graceMS = 15
	startMS = 1_000_000
)
