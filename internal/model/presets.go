package model

import "github.com/lockstepmq/lockstep/coordinator/replica"

// Mutation is a rule that is switched off, and the configuration that is
// searched for the harm it does.
type Mutation struct {
	Rule   string
	Config Config
	// Why is set for a rule whose removal no property catches: why that is.
	Why string
}

// pair and trio are the clusters that mutations start from.
func pair(change func(*Config)) Config {
	c := Config{Replicas: 2, MinISR: 2, Depth: 3, MaxEpoch: 3, MaxCAS: 4}
	change(&c)
	return c
}

func trio(change func(*Config)) Config {
	c := Config{Replicas: 3, MinISR: 2, Depth: 3, MaxEpoch: 3, MaxCAS: 4, EagerSync: true}
	change(&c)
	return c
}

func (c Config) with(change func(*Config)) Config {
	change(&c)
	return c
}

// Short is explored at every change: each configuration to its end.
func Short() []Config {
	return []Config{
		{Name: "one broker, two crashes", Replicas: 1, MinISR: 1, Puts: 2, Retries: 1, Ticks: 1, Crashes: 2, Torn: true, Depth: 3, MaxEpoch: 3, MaxCAS: 3},
		{Name: "rollback, lost answers", Replicas: 2, MinISR: 2, Puts: 2, Retries: 1, Ticks: 2, CASLost: 1, EagerSync: true, Depth: 3, MaxEpoch: 2, MaxCAS: 2},
		{Name: "crash with a torn group", Replicas: 2, MinISR: 2, Puts: 1, Retries: 1, Crashes: 1, Torn: true, Depth: 2, MaxEpoch: 2, MaxCAS: 2},
		{Name: "rollback meets an election", Replicas: 2, MinISR: 2, Puts: 1, Ticks: 2, Expiries: 1, EagerSync: true, Depth: 2, MaxEpoch: 3, MaxCAS: 3},
		{Name: "wiped store", Replicas: 2, MinISR: 2, Puts: 1, Wipes: 1, Expiries: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 2},
		{Name: "restored store", Replicas: 2, MinISR: 2, Puts: 1, Restores: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 2},
		{Name: "shrink, grow, swap, late transactions", Replicas: 3, MinISR: 2, Away: true, Puts: 1, CASLost: 1, Suspects: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 3},
		{Name: "channels' state, a newcomer", Replicas: 3, MinISR: 2, Changes: 1, Suspects: 1, Away: true, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 2},
		{Name: "lost, doubled, overtaking messages", Replicas: 2, MinISR: 2, Puts: 2, Losses: 1, Doubles: 1, Reorders: 1, Ticks: 1, EagerSync: true, Depth: 3, MaxEpoch: 2, MaxCAS: 2},
		{Name: "hand-over", Replicas: 3, MinISR: 2, Puts: 1, Retries: 1, HandOvers: 1, Ticks: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 2},
	}
}

// Long is explored now and then: more faults together, each configuration up to
// limit states.
func Long(limit int) []Config {
	all := append(Short(), []Config{
		{Name: "one broker, everything", Replicas: 1, MinISR: 1, Puts: 2, Retries: 1, Changes: 1, Ticks: 1, Crashes: 2, Torn: true, Expiries: 1, CASLost: 1, Depth: 3, MaxEpoch: 3, MaxCAS: 3},
		{Name: "two brokers, one may do", Replicas: 2, MinISR: 1, Puts: 1, Crashes: 1, Suspects: 1, Expiries: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 3},
		{Name: "two brokers, most faults", Replicas: 2, MinISR: 2, Puts: 1, Retries: 1, Ticks: 2, Crashes: 1, Torn: true, Expiries: 1, CASLost: 1, EagerSync: true, Depth: 3, MaxEpoch: 3, MaxCAS: 3},
		{Name: "two brokers, slow disks", Replicas: 2, MinISR: 2, Puts: 1, Ticks: 1, Expiries: 1, Losses: 1, Crashes: 1, Torn: true, Depth: 2, MaxEpoch: 3, MaxCAS: 3},
		{Name: "two brokers, bad network", Replicas: 2, MinISR: 2, Puts: 2, Changes: 1, Ticks: 2, Losses: 1, Doubles: 1, Reorders: 1, Expiries: 1, EagerSync: true, Depth: 3, MaxEpoch: 3, MaxCAS: 3},
		{Name: "two brokers, wiped and crashed", Replicas: 2, MinISR: 2, Puts: 1, Retries: 1, Changes: 1, Wipes: 1, Crashes: 1, EagerSync: true, Depth: 3, MaxEpoch: 3, MaxCAS: 3},
		{Name: "three brokers, elections", Replicas: 3, MinISR: 2, Puts: 1, Retries: 1, Expiries: 2, EagerSync: true, Depth: 2, MaxEpoch: 3, MaxCAS: 3},
		{Name: "three brokers, restored store", Replicas: 3, MinISR: 2, Puts: 1, Restores: 1, Expiries: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 3},
		{Name: "three brokers, newcomer and election", Replicas: 3, MinISR: 2, Away: true, Puts: 2, Changes: 1, Suspects: 1, CASLost: 1, Expiries: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 3},
		{Name: "three brokers, all needed", Replicas: 3, MinISR: 3, Puts: 2, Ticks: 2, Expiries: 1, EagerSync: true, Depth: 2, MaxEpoch: 3, MaxCAS: 3},
	}...)
	for i := range all {
		all[i].MaxStates = limit
	}
	return all
}

// Mutations lists every rule that can be switched off.
func Mutations() []Mutation {
	rules := append(append(append(logRules(), electionRules()...), rollbackRules()...), clientRules()...)
	rules = append(append(rules, worldRules()...), harmless()...)
	for i := range rules {
		r := &rules[i]
		r.Config.Name = r.Rule
		if len(r.Rule) > 6 && r.Rule[:6] == "world:" {
			r.Config.World = r.Rule
		} else {
			r.Config.Break = r.Rule
		}
	}
	return rules
}

// logRules: what an acknowledgement says, and what is compared.
func logRules() []Mutation {
	return []Mutation{
		{Rule: replica.BreakSyncBeforeAck, Config: pair(func(c *Config) { c.Puts = 1 })},
		{Rule: replica.BreakOwnSync, Config: pair(func(c *Config) { c.Puts = 1 })},
		{Rule: replica.BreakDupCRC, Config: pair(func(c *Config) { c.Puts, c.Expiries = 1, 2 })},
		{Rule: replica.BreakAckVerified, Config: pair(func(c *Config) { c.Puts, c.Expiries, c.Losses, c.EagerSync = 1, 2, 1, true })},
		{Rule: replica.BreakAckEpoch, Config: pair(func(c *Config) { c.Puts, c.Ticks, c.Reorders, c.EagerSync = 2, 1, 2, true })},
		{Rule: replica.BreakVerifiedEpoch, Config: pair(func(c *Config) { c.Puts, c.Crashes, c.Expiries, c.Losses = 1, 1, 1, 1 })},
		{Rule: replica.BreakPromiseDurable, Config: trio(func(c *Config) {
			c.EagerSync, c.Puts, c.Expiries, c.Suspects, c.Crashes, c.given = false, 1, 2, 1, 1, threeLeaders()
		})},
		{Rule: replica.BreakTruncateClamp, Config: pair(func(c *Config) { c.Puts, c.Ticks, c.Expiries, c.Losses = 1, 1, 1, 1 })},
	}
}

// threeLeaders is how n1 comes to lead epoch 3 with a put that n2 has synced too,
// while n3, out of the in-sync set, still believes in its epoch 2, without it.
func threeLeaders() []action {
	const n1, n2, n3 = 0, 1, 2
	return []action{
		{kind: doPut, node: n1}, {kind: doSync, node: n1},
		{kind: doDeliver, node: n2, a: n1},
		{kind: doExpire, node: n1}, {kind: doWatch, node: n3}, {kind: doCarryOut, node: n3}, {kind: doAnswer, node: n3}, {kind: doSync, node: n3},
		{kind: doWatch, node: n1}, {kind: doWatch, node: n1}, {kind: doRegister, node: n1}, {kind: doWatch, node: n1},
		{kind: doExpire, node: n3}, {kind: doWatch, node: n1}, {kind: doCarryOut, node: n1}, {kind: doAnswer, node: n1}, {kind: doSync, node: n1},
		{kind: doSuspect, node: n1, a: n3}, {kind: doCarryOut, node: n1}, {kind: doAnswer, node: n1},
		{kind: doDeliver, node: n2, a: n1}, {kind: doSync, node: n2},
	}
}

// electionRules: who leads, who is a member, what a proposal means.
func electionRules() []Mutation {
	away := trio(func(c *Config) { c.Puts, c.Away = 1, true })
	return []Mutation{
		{Rule: replica.BreakEpochCheck, Config: trio(func(c *Config) { c.Puts, c.Expiries = 1, 1 })},
		{Rule: replica.BreakIncarnation, Config: Config{Replicas: 1, MinISR: 1, Puts: 1, Crashes: 1, Depth: 3, MaxEpoch: 3, MaxCAS: 4}},
		{Rule: replica.BreakElectOutsideISR, Config: away.with(func(c *Config) { c.Expiries = 1 })},
		{Rule: replica.BreakStoreElect, Config: pair(func(c *Config) { c.Puts, c.Wipes, c.Crashes, c.EagerSync = 1, 1, 1, true })},
		{Rule: replica.BreakStoreID, Config: pair(func(c *Config) { c.Puts, c.Wipes, c.Crashes, c.EagerSync = 1, 1, 1, true })},
		{Rule: replica.BreakMinISR, Config: pair(func(c *Config) { c.Puts, c.Suspects = 1, 1 })},
		{Rule: replica.BreakMaximalISR, Config: away},
		{Rule: replica.BreakProposedISR, Config: away},
		{Rule: replica.BreakLateCAS, Config: away.with(func(c *Config) { c.CASLost = 1 })},
		{Rule: replica.BreakJoinBar, Config: away},
		{Rule: replica.BreakJoinEpochStart, Config: away.with(func(c *Config) { c.Expiries = 1 })},
		{Rule: replica.BreakJoinConfirm, Config: away.with(func(c *Config) { c.Puts, c.Changes = 0, 1 })},
	}
}

// rollbackRules: what is taken back, when, and what is said of it.
func rollbackRules() []Mutation {
	waits := pair(func(c *Config) { c.Puts, c.Ticks, c.EagerSync = 1, 1, true })
	return []Mutation{
		{Rule: replica.BreakMarkerGate, Config: waits.with(func(c *Config) { c.Puts, c.Expiries = 2, 1 })},
		{Rule: replica.BreakRollbackEpoch, Config: waits.with(func(c *Config) { c.Expiries = 1 })},
		{Rule: replica.BreakRollbackAnswer, Config: waits.with(func(c *Config) { c.Expiries = 1 })},
		{Rule: replica.BreakRollbackFreeze, Config: waits},
		{Rule: replica.BreakRollbackMarker, Config: waits.with(func(c *Config) { c.Expiries, c.Retries = 1, 1 })},
		{Rule: replica.BreakRollbackPositions, Config: trio(func(c *Config) { c.MinISR, c.Puts, c.Ticks, c.MaxEpoch = 3, 1, 1, 2 })},
		{Rule: replica.BreakStepDownDoubt, Config: waits.with(func(c *Config) { c.Ticks, c.Expiries = 0, 1 })},
	}
}

// clientRules: repeats of puts, and the channels' state.
func clientRules() []Mutation {
	repeat := pair(func(c *Config) { c.Puts, c.Retries, c.EagerSync = 1, 1, true })
	changes := pair(func(c *Config) { c.Changes, c.EagerSync = 1, true })
	return []Mutation{
		{Rule: replica.BreakRequestID, Config: repeat},
		{Rule: replica.BreakRequestCommitted, Config: repeat},
		{Rule: replica.BreakRequestFollower, Config: repeat.with(func(c *Config) { c.Expiries = 1 })},
		{Rule: replica.BreakRequestTruncate, Config: repeat.with(func(c *Config) { c.Puts, c.Ticks, c.MaxEpoch = 2, 1, 2 })},
		{Rule: replica.BreakConfirmOnAll, Config: changes},
		{Rule: replica.BreakConfirmOrder, Config: changes.with(func(c *Config) { c.Changes, c.Losses = 2, 1 })},
	}
}

// worldRules: what the protocol needs of the metadata store and the disk.
func worldRules() []Mutation {
	return []Mutation{
		{Rule: WorldRestoredStore, Config: pair(func(c *Config) { c.Puts, c.Restores, c.EagerSync = 1, 1, true })},
		{Rule: WorldCompareRevision, Config: trio(func(c *Config) { c.Puts, c.Away, c.Suspects, c.CASLost, c.Ticks, c.MaxEpoch = 1, true, 1, 1, 1, 1 })},
		{Rule: WorldTornOrder, Config: pair(func(c *Config) { c.Puts, c.Crashes = 2, 1 })},
	}
}

// harmless lists the rules whose removal no property catches, with the reason.
func harmless() []Mutation {
	return []Mutation{
		{Rule: replica.BreakFollowerCommit, Config: trio(func(c *Config) { c.Puts, c.Expiries, c.Suspects = 1, 1, 1 }),
			Why: "the first append of an epoch begins where the logs join, so it cuts what conflicts before it says what is committed; the rule guards leaders that would begin elsewhere"},
		{Rule: replica.BreakConfirmEpoch, Config: pair(func(c *Config) { c.Changes, c.Expiries, c.EagerSync = 2, 1, true }),
			Why: "a leader refuses acknowledgements of versions that it has not issued in its epoch, and issues no second one before its marker is committed"},
		{Rule: WorldCompareSelf, Config: pair(func(c *Config) { c.Puts, c.Expiries, c.EagerSync = 1, 2, true }),
			Why: "the revision alone orders the transactions; a broker that is not registered anew leads nothing with what it won"},
		{Rule: WorldCompareGone, Config: pair(func(c *Config) { c.Puts, c.Expiries, c.EagerSync = 1, 2, true }),
			Why: "an election against a living leader is one more change of epoch: safe, but leaders would be robbed"},
		{Rule: replica.BreakStoreAddressed, Config: pair(func(c *Config) { c.Puts, c.Wipes, c.Crashes, c.EagerSync = 1, 1, 1, true }),
			Why: "what was meant for the lost store does not join the new one's log, and its chain of checksums says so: the rule saves a round trip"},
		{Rule: replica.BreakAckIncarnation, Config: pair(func(c *Config) { c.Puts, c.Wipes, c.Reorders, c.EagerSync = 1, 1, 1, true }),
			Why: "an earlier process of the same store speaks of durable bytes, which are still there; of another store its word is refused by store-id"},
		{Rule: replica.BreakOpenDurable, Config: pair(func(c *Config) { c.Puts, c.Crashes, c.Ticks = 1, 1, 1 }),
			Why: "committing needs the leader's own durable switch (own-sync), and a leader that crashed before it needs another epoch (incarnation)"},
		{Rule: replica.BreakRegistration, Config: pair(func(c *Config) { c.Puts, c.Retries, c.Expiries = 1, 1, 1 }),
			Why: "committing needs every member of the in-sync set, and those that follow a newer leader refuse: the rule ends deliveries sooner"},
		{Rule: replica.BreakHandOverComplete, Config: pair(func(c *Config) { c.Puts, c.Retries, c.HandOvers, c.Ticks = 1, 1, 1, 1 }),
			Why: "the heir is a member, so it holds all that is committed: the rule saves the puts under way from doubt"},
	}
}
