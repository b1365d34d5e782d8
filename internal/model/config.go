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

	Ticks     uint8 // of all brokers together
	Crashes   uint8 // a process ends, what is not synced is lost
	Torn      bool  // a crash may also keep a first part of what is not synced
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
	Depth     int  // messages under way on one link, at most 4; more are lost
	MaxEpoch  uint64
	MaxCAS    int64 // transactions that land

	Break     string // a rule of the machine that is switched off
	World     string // a rule of the surroundings that is switched off
	MaxStates int    // 0 = all

	given []action // happens before the search begins, for what is too deep to be found from rest
}

// The rules of the surroundings that the protocol rests on.
const (
	// WorldRestoredStore: a store that lost acknowledged bytes keeps its id.
	WorldRestoredStore = "world:store-renamed"
	// WorldCompareRevision: a transaction compares the epoch, not the revision.
	WorldCompareRevision = "world:compare-revision"
	// WorldCompareSelf: a transaction lands though its proposer is not registered.
	WorldCompareSelf = "world:compare-self"
	// WorldCompareGone: an election lands though the leader is registered.
	WorldCompareGone = "world:compare-gone"
	// WorldTornOrder: a crash keeps a later submission and loses an earlier one.
	WorldTornOrder = "world:journal-order"
)

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
