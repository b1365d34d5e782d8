package model

// Short is explored at every change: each configuration to its end.
func Short() []Config {
	return []Config{
		{Name: "one broker, two crashes", Replicas: 1, MinISR: 1, Puts: 2, Retries: 1, Ticks: 1, Crashes: 2, Torn: true, Depth: 3, MaxEpoch: 3, MaxCAS: 3},
		{Name: "rollback, lost answers", Replicas: 2, MinISR: 2, Puts: 2, Retries: 1, Ticks: 2, CASLost: 1, EagerSync: true, Depth: 3, MaxEpoch: 2, MaxCAS: 2},
		{Name: "crash with a torn group", Replicas: 2, MinISR: 2, Puts: 1, Retries: 1, Crashes: 1, Torn: true, Depth: 2, MaxEpoch: 2, MaxCAS: 2},
		{Name: "rollback meets an election", Replicas: 2, MinISR: 2, Puts: 1, Ticks: 1, Expiries: 1, EagerSync: true, Depth: 2, MaxEpoch: 3, MaxCAS: 3},
		{Name: "wiped store", Replicas: 2, MinISR: 2, Puts: 1, Wipes: 1, Expiries: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 2},
		{Name: "restored store", Replicas: 2, MinISR: 2, Puts: 1, Restores: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 2},
		{Name: "shrink, grow, swap, late transactions", Replicas: 3, MinISR: 2, Away: true, Puts: 1, CASLost: 1, Suspects: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 3},
		{Name: "channels' state, a newcomer", Replicas: 3, MinISR: 2, Changes: 1, Suspects: 1, Away: true, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 2},
		{Name: "lost, doubled, overtaking messages", Replicas: 2, MinISR: 2, Puts: 2, Losses: 1, Doubles: 1, Reorders: 1, Ticks: 1, EagerSync: true, Depth: 3, MaxEpoch: 2, MaxCAS: 2},
		{Name: "published again", Replicas: 2, MinISR: 2, Puts: 2, Retries: 1, Identified: true, Expiries: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 2},
		{Name: "hand-over", Replicas: 3, MinISR: 2, Puts: 1, HandOvers: 1, Ticks: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 2},
	}
}

// Long is explored occasionally: more faults together, each configuration up to
// limit states.
func Long(limit int) []Config {
	all := append(Short(), []Config{
		{Name: "rollback meets an election, two ticks", Replicas: 2, MinISR: 2, Puts: 1, Ticks: 2, Expiries: 1, EagerSync: true, Depth: 2, MaxEpoch: 3, MaxCAS: 3},
		{Name: "hand-over, a retry", Replicas: 3, MinISR: 2, Puts: 1, Retries: 1, HandOvers: 1, Ticks: 1, EagerSync: true, Depth: 2, MaxEpoch: 2, MaxCAS: 2},
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
