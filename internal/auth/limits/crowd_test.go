package limits_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func network(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}), 32)
}

// TestTheLargestNetworkGivesWay: any number of networks below the seats displaces no connection of another one.
func TestTheLargestNetworkGivesWay(t *testing.T) {
	for _, strangers := range []int{1, 2, 20, 99} {
		var c limits.Crowd[string]
		third := c.Add(network(0), "third")
		gone := 0
		for n := range 10_000 {
			c.Add(network(1+n%strangers), fmt.Sprint(n))
			for c.Len() > 100 {
				next := c.Next()
				require.NotSame(t, third, next, "%d networks", strangers)
				require.Equal(t, fmt.Sprint(gone), next.Value, "%d networks: the oldest of the largest", strangers)
				gone++
				c.Remove(next)
			}
		}
		require.Same(t, third, c.Oldest(network(0)))
		c.Remove(third)
		require.Nil(t, c.Oldest(network(0)))
		require.Equal(t, 99, c.Len())
	}
	var c limits.Crowd[string]
	require.Nil(t, c.Next())
	for n := range 200 {
		c.Add(network(n), fmt.Sprint(n))
	}
	require.Equal(t, "0", c.Next().Value, "more networks than seats: the oldest of all")
}

// TestNextIsFair compares with a list.
func TestNextIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c limits.Crowd[int]
		var all []*limits.Member[int]
		from := map[*limits.Member[int]]int{}
		count := map[int]int{}
		for n := range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch {
			case len(all) == 0 || rapid.Bool().Draw(t, "add"):
				of := rapid.IntRange(0, 5).Draw(t, "network")
				m := c.Add(network(of), n)
				all, from[m] = append(all, m), of
				count[of]++
			default:
				m := rapid.SampledFrom(all).Draw(t, "member")
				if rapid.Bool().Draw(t, "next") {
					m = c.Next()
				}
				for _, others := range count {
					if m == c.Next() && count[from[m]] < others {
						t.Fatal("a smaller network gives way")
					}
				}
				if m == c.Next() {
					for _, x := range all {
						if from[x] == from[m] && x.Value < m.Value {
							t.Fatal("a younger one gives way")
						}
					}
				}
				c.Remove(m)
				all = slices.DeleteFunc(all, func(x *limits.Member[int]) bool { return x == m })
				count[from[m]]--
			}
			if c.Len() != len(all) {
				t.Fatal(c.Len(), len(all))
			}
		}
	})
}

// TestConstantTime: a connection more or less in a large network makes nothing for each of the others.
func TestConstantTime(t *testing.T) {
	var c limits.Crowd[int]
	for n := range 1000 {
		c.Add(network(0), n)
	}
	require.Less(t, testing.AllocsPerRun(100, func() { c.Remove(c.Add(network(0), 0)) }), 10.0)
	require.Equal(t, 0, c.Next().Value)
}
