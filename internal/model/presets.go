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
		{Rule: replica.BreakFollowerCommit, Config: trio(func(c *Config) { c.Puts, c.Expiries, c.Suspects = 1, 1, 1 })},
		{Rule: replica.BreakAckEpoch, Config: pair(func(c *Config) { c.Puts, c.Ticks, c.Reorders, c.EagerSync = 2, 1, 2, true })},
		{Rule: replica.BreakVerifiedEpoch, Config: trio(func(c *Config) { c.Puts, c.Expiries, c.Losses = 1, 2, 1 })},
		{Rule: replica.BreakTruncateClamp, Config: pair(func(c *Config) { c.Puts, c.Ticks, c.Expiries, c.Losses = 1, 1, 1, 1 })},
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
		{Rule: replica.BreakConfirmEpoch, Config: changes.with(func(c *Config) { c.Changes, c.Expiries = 2, 1 })},
	}
}

// worldRules: what the protocol needs of the metadata store and the disk.
func worldRules() []Mutation {
	return []Mutation{
		{Rule: WorldRestoredStore, Config: pair(func(c *Config) { c.Puts, c.Restores, c.EagerSync = 1, 1, true })},
		{Rule: WorldCompareRevision, Config: trio(func(c *Config) { c.Puts, c.Away, c.Suspects, c.CASLost, c.Ticks, c.MaxEpoch = 1, true, 1, 1, 1, 1 })},
		{Rule: WorldTornOrder, Config: pair(func(c *Config) { c.Puts, c.Crashes = 2, 1 })},
		{Rule: WorldCompareSelf, Config: pair(func(c *Config) { c.Puts, c.Expiries, c.EagerSync = 1, 2, true })},
		{Rule: WorldCompareGone, Config: pair(func(c *Config) { c.Puts, c.Expiries, c.EagerSync = 1, 2, true })},
	}
}

// harmless lists the rules whose removal no property catches, with the reason.
func harmless() []Mutation {
	return []Mutation{
		{Rule: replica.BreakStoreAddressed, Config: pair(func(c *Config) { c.Puts, c.Wipes, c.Crashes, c.EagerSync = 1, 1, 1, true })},
		{Rule: replica.BreakAckIncarnation, Config: pair(func(c *Config) { c.Puts, c.Wipes, c.Reorders, c.EagerSync = 1, 1, 1, true })},
		{Rule: replica.BreakPromiseDurable, Config: pair(func(c *Config) { c.Puts, c.Crashes, c.Ticks = 1, 1, 1 })},
		{Rule: replica.BreakOpenDurable, Config: pair(func(c *Config) { c.Puts, c.Crashes, c.Ticks = 1, 1, 1 })},
		{Rule: replica.BreakRegistration, Config: pair(func(c *Config) { c.Puts, c.Retries, c.Expiries = 1, 1, 1 })},
		{Rule: replica.BreakHandOverComplete, Config: pair(func(c *Config) { c.Puts, c.Retries, c.HandOvers, c.Ticks = 1, 1, 1, 1 })},
	}
}
