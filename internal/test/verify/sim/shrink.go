package sim

// Shrink leaves faults out of a failing run as long as the same promise stays
// broken, and returns the shortest failing run found in at most limit tries.
func Shrink(c Config, check string, limit int) Config {
	n := len(draw(c.Seed).faults)
	skip := make([]bool, n)
	copy(skip, c.Skip)
	fails := func(s []bool) bool {
		limit--
		try := c
		try.Skip, try.Trace = s, false
		r := Run(try)
		return r.Failure != nil && r.Failure.Check == check
	}
	for size := n / 2; size > 0 && limit > 0; size /= 2 {
		for from := 0; from < n && limit > 0; from += size {
			try := append([]bool(nil), skip...)
			dropped := false
			for i := from; i < min(from+size, n); i++ {
				dropped = dropped || !try[i]
				try[i] = true
			}
			if dropped && fails(try) {
				skip = try
			}
		}
	}
	c.Skip = skip
	return c
}
