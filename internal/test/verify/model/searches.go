package model

// searches are the configurations that are searched for the harm that a mutant does
// (internal/test/verify/mutants), by its name: the faults in which its rule matters, in a
// cluster small enough to find the harm soon.
func searches() map[string]Config {
	all := map[string]Config{}
	for _, group := range []map[string]Config{logSearches(), electionSearches(), rollbackSearches(), clientSearches(), worldSearches()} {
		for name, c := range group {
			c.Name = name
			all[name] = c
		}
	}
	return all
}

// pair and trio are the clusters that searches start from.
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

// logSearches: the meaning of an acknowledgement, and the comparison of logs.
func logSearches() map[string]Config {
	put := pair(func(c *Config) { c.Puts = 1 })
	return map[string]Config{
		"sync-before-ack": put,
		"own-sync":        put,
		"dup-crc":         put.with(func(c *Config) { c.Expiries = 2 }),
		"ack-verified":    put.with(func(c *Config) { c.Expiries, c.Losses, c.EagerSync = 2, 1, true }),
		"ack-epoch":       pair(func(c *Config) { c.Puts, c.Ticks, c.Reorders, c.EagerSync = 2, 1, 2, true }),
		"verified-epoch":  put.with(func(c *Config) { c.Crashes, c.Expiries, c.Losses = 1, 1, 1 }),
		"promise-durable": trio(func(c *Config) {
			c.EagerSync, c.Puts, c.Expiries, c.Suspects, c.Crashes, c.given = false, 1, 2, 1, 1, threeLeaders()
		}),
		"truncate-clamp":  put.with(func(c *Config) { c.Ticks, c.Expiries, c.Losses = 1, 1, 1 }),
		"follower-commit": trio(func(c *Config) { c.Puts, c.Expiries, c.Suspects = 1, 1, 1 }),
		"ack-incarnation": put.with(func(c *Config) { c.Wipes, c.Reorders, c.EagerSync = 1, 1, true }),
		"store-addressed": put.with(func(c *Config) { c.Wipes, c.Crashes, c.EagerSync = 1, 1, true }),
		"open-durable":    put.with(func(c *Config) { c.Crashes, c.Ticks = 1, 1 }),
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

// electionSearches: the right to lead, membership, and the meaning of a proposal.
func electionSearches() map[string]Config {
	away := trio(func(c *Config) { c.Puts, c.Away = 1, true })
	wiped := pair(func(c *Config) { c.Puts, c.Wipes, c.Crashes, c.EagerSync = 1, 1, 1, true })
	return map[string]Config{
		"epoch-check":       trio(func(c *Config) { c.Puts, c.Expiries = 1, 1 }),
		"incarnation":       {Replicas: 1, MinISR: 1, Puts: 1, Crashes: 1, Depth: 3, MaxEpoch: 3, MaxCAS: 4},
		"elect-outside-isr": away.with(func(c *Config) { c.Expiries = 1 }),
		"store-elect":       wiped,
		"store-id":          wiped,
		"min-isr":           pair(func(c *Config) { c.Puts, c.Suspects = 1, 1 }),
		"maximal-isr":       away,
		"proposed-isr":      away,
		"late-cas":          away.with(func(c *Config) { c.CASLost = 1 }),
		"join-bar":          away,
		"join-epoch-start":  away.with(func(c *Config) { c.Expiries = 1 }),
		"join-state":        away.with(func(c *Config) { c.Puts, c.Changes = 0, 1 }),
		"registration":      pair(func(c *Config) { c.Puts, c.Retries, c.Expiries = 1, 1, 1 }),
		"transfer-complete": pair(func(c *Config) { c.Puts, c.Retries, c.HandOvers, c.Ticks = 1, 1, 1, 1 }),
	}
}

// rollbackSearches: which puts a rollback removes, when, and what it answers.
func rollbackSearches() map[string]Config {
	waits := pair(func(c *Config) { c.Puts, c.Ticks, c.EagerSync = 1, 1, true })
	return map[string]Config{
		"rollback-epoch":     waits.with(func(c *Config) { c.Expiries = 1 }),
		"rollback-answer":    waits.with(func(c *Config) { c.Expiries = 1 }),
		"rollback-delivers":  waits,
		"rollback-freeze":    waits,
		"rollback-positions": trio(func(c *Config) { c.MinISR, c.Puts, c.Ticks, c.MaxEpoch = 3, 1, 1, 2 }),
		"overdue-doubt":      waits.with(func(c *Config) { c.Ticks = 3 }),
		"step-down-doubt":    waits.with(func(c *Config) { c.Ticks, c.Expiries = 0, 1 }),
	}
}

// clientSearches: repeats of puts, and the channel state.
func clientSearches() map[string]Config {
	repeat := pair(func(c *Config) { c.Puts, c.Retries, c.EagerSync = 1, 1, true })
	changes := pair(func(c *Config) { c.Changes, c.EagerSync = 1, true })
	return map[string]Config{
		"request-id":        repeat,
		"request-committed": repeat,
		"request-follower":  repeat.with(func(c *Config) { c.Expiries = 1 }),
		"request-truncate":  repeat.with(func(c *Config) { c.Puts, c.Ticks, c.MaxEpoch = 2, 1, 2 }),
		"dedupe-truncate":   repeat.with(func(c *Config) { c.Puts, c.Ticks, c.MaxEpoch, c.Identified = 2, 1, 2, true }),
		"state-on-all":      changes,
		"state-order":       changes.with(func(c *Config) { c.Changes, c.Losses = 2, 1 }),
		"state-epoch":       changes.with(func(c *Config) { c.Changes, c.Expiries = 2, 1 }),
	}
}

// worldSearches: the rules of the metadata store and of the disk that the protocol
// rests on.
func worldSearches() map[string]Config {
	leaders := pair(func(c *Config) { c.Puts, c.Expiries, c.EagerSync = 1, 2, true })
	return map[string]Config{
		"world-store-renamed":    pair(func(c *Config) { c.Puts, c.Restores, c.EagerSync = 1, 1, true }),
		"world-compare-revision": trio(func(c *Config) { c.Puts, c.Away, c.Suspects, c.CASLost, c.Ticks, c.MaxEpoch = 1, true, 1, 1, 1, 1 }),
		"world-compare-self":     leaders,
		"world-compare-gone":     leaders,
		"world-journal-order":    pair(func(c *Config) { c.Puts, c.Crashes = 2, 1 }),
	}
}
