package calls

import "github.com/lockstepmq/lockstep/internal/api"

// TopicStats is an api.TopicStats.
// On the wire, by place: append only.
type TopicStats struct {
	TopicName           string
	Channels            []ChannelStats
	Depth, BackendDepth int64
	MessageCount        uint64
	MessageBytes        uint64
	Paused              bool
	E2E                 Latency
}

// ChannelStats is an api.ChannelStats.
// On the wire, by place: append only.
type ChannelStats struct {
	ChannelName                  string
	Depth, BackendDepth          int64
	InFlightCount, DeferredCount int
	MessageCount                 uint64
	ZoneLocalMsgCount            uint64
	RegionLocalMsgCount          uint64
	GlobalMsgCount               uint64
	RequeueCount, TimeoutCount   uint64
	ClientCount                  int
	Clients                      []None // none: only the place is there
	Paused                       bool
	E2E                          Latency
	Ordered                      bool
	Filter                       string
	FilteredCount                uint64
	ExpiredCount                 uint64
}

// Latency is an api.E2ELatency.
// On the wire, by place: append only.
type Latency struct {
	Count       int
	Percentiles []Percentile
}

// Percentile is an api.Percentile.
// On the wire, by place: append only.
type Percentile struct{ Quantile, Value float64 }

// StatsOf are the statistics as they travel.
func StatsOf(list []api.TopicStats) []TopicStats {
	out := make([]TopicStats, len(list))
	for i, t := range list {
		out[i] = TopicStats{
			TopicName: t.TopicName, Channels: make([]ChannelStats, len(t.Channels)),
			Depth: t.Depth, BackendDepth: t.BackendDepth,
			MessageCount: t.MessageCount, MessageBytes: t.MessageBytes, Paused: t.Paused, E2E: latencyOf(t.E2E),
		}
		for j, c := range t.Channels {
			out[i].Channels[j] = ChannelStats{
				ChannelName: c.ChannelName, Depth: c.Depth, BackendDepth: c.BackendDepth,
				InFlightCount: c.InFlightCount, DeferredCount: c.DeferredCount, MessageCount: c.MessageCount,
				ZoneLocalMsgCount: c.ZoneLocalMsgCount, RegionLocalMsgCount: c.RegionLocalMsgCount, GlobalMsgCount: c.GlobalMsgCount,
				RequeueCount: c.RequeueCount, TimeoutCount: c.TimeoutCount,
				ClientCount: c.ClientCount, Paused: c.Paused, E2E: latencyOf(c.E2E), Ordered: c.Ordered,
				Filter: c.Filter, FilteredCount: c.FilteredCount, ExpiredCount: c.ExpiredCount,
			}
		}
	}
	return out
}

// EdgeStats are the statistics as the edges have them, without clients.
func EdgeStats(list []TopicStats) []api.TopicStats {
	out := make([]api.TopicStats, len(list))
	for i, t := range list {
		out[i] = api.TopicStats{
			TopicName: t.TopicName, Channels: make([]api.ChannelStats, len(t.Channels)),
			Depth: t.Depth, BackendDepth: t.BackendDepth,
			MessageCount: t.MessageCount, MessageBytes: t.MessageBytes, Paused: t.Paused, E2E: t.E2E.edge(),
		}
		for j, c := range t.Channels {
			out[i].Channels[j] = api.ChannelStats{
				ChannelName: c.ChannelName, Depth: c.Depth, BackendDepth: c.BackendDepth,
				InFlightCount: c.InFlightCount, DeferredCount: c.DeferredCount, MessageCount: c.MessageCount,
				ZoneLocalMsgCount: c.ZoneLocalMsgCount, RegionLocalMsgCount: c.RegionLocalMsgCount, GlobalMsgCount: c.GlobalMsgCount,
				RequeueCount: c.RequeueCount, TimeoutCount: c.TimeoutCount,
				ClientCount: c.ClientCount, Paused: c.Paused, E2E: c.E2E.edge(), Ordered: c.Ordered,
				Filter: c.Filter, FilteredCount: c.FilteredCount, ExpiredCount: c.ExpiredCount,
			}
		}
	}
	return out
}

func latencyOf(l api.E2ELatency) Latency {
	out := Latency{Count: l.Count, Percentiles: make([]Percentile, len(l.Percentiles))}
	for i, p := range l.Percentiles {
		out.Percentiles[i] = Percentile(p)
	}
	return out
}

func (l Latency) edge() api.E2ELatency {
	out := api.E2ELatency{Count: l.Count, Percentiles: make([]api.Percentile, len(l.Percentiles))}
	for i, p := range l.Percentiles {
		out.Percentiles[i] = api.Percentile(p)
	}
	return out
}
