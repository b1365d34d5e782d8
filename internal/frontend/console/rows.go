package console

// shortRow is a topic's part with its channels, as brokers send it to each other: a table of
// thousands of idle topics is a sixth of its length in the answers to the page. Fields may be added.
type shortRow struct {
	Topic    string         `json:"t"`
	Messages uint64         `json:"m,omitempty"`
	Depth    int64          `json:"d,omitempty"`
	Lag      float64        `json:"l,omitempty"`
	Paused   bool           `json:"p,omitempty"`
	Puts     *float64       `json:"w,omitempty"`
	PutBytes *float64       `json:"b,omitempty"`
	Kept     *float64       `json:"k,omitempty"`
	Channels []shortChannel `json:"c,omitempty"`
}

type shortChannel struct {
	Channel  string   `json:"n"`
	Depth    int64    `json:"d,omitempty"`
	InFlight int64    `json:"i,omitempty"`
	Deferred int64    `json:"f,omitempty"`
	Lag      float64  `json:"l,omitempty"`
	Clients  int      `json:"s,omitempty"`
	Paused   bool     `json:"p,omitempty"`
	Ordered  bool     `json:"o,omitempty"`
	Finishes *float64 `json:"r,omitempty"`
	Requeues uint64   `json:"q,omitempty"`
	Timeouts uint64   `json:"x,omitempty"`
}

// compact is the part with short rows. The channels of each topic follow its place in the list.
func (p part) compact() part {
	p.Rows = make([]shortRow, 0, len(p.Topics))
	channels := make([]shortChannel, 0, len(p.Channels))
	for _, t := range p.Topics {
		from := len(channels)
		for len(channels) < len(p.Channels) && p.Channels[len(channels)].Topic == t.Topic {
			c := &p.Channels[len(channels)]
			channels = append(channels, shortChannel{c.Channel, c.Depth, c.InFlight, c.Deferred, c.LagSeconds, c.Clients, c.Paused, c.Ordered, c.Finishes, c.Requeues, c.Timeouts})
		}
		p.Rows = append(p.Rows, shortRow{t.Topic, t.Messages, t.Depth, t.LagSeconds, t.Paused, t.Puts, t.PutBytes, t.KeptBytes, channels[from:]})
	}
	p.Topics, p.Channels = nil, nil
	return p
}

// expand is the inverse of compact.
func (p *part) expand() {
	if len(p.Rows) == 0 {
		return
	}
	channels := 0
	for i := range p.Rows {
		channels += len(p.Rows[i].Channels)
	}
	p.Topics, p.Channels = make([]Topic, 0, len(p.Rows)), make([]Channel, 0, channels)
	for _, r := range p.Rows {
		p.Topics = append(p.Topics, Topic{
			Topic: r.Topic, Messages: r.Messages, Depth: r.Depth, LagSeconds: r.Lag, Paused: r.Paused, Channels: len(r.Channels), Puts: r.Puts, PutBytes: r.PutBytes, KeptBytes: r.Kept,
		})
		for _, c := range r.Channels {
			p.Channels = append(p.Channels, Channel{
				Topic: r.Topic, Channel: c.Channel, Depth: c.Depth, InFlight: c.InFlight, Deferred: c.Deferred, LagSeconds: c.Lag, Clients: c.Clients,
				Paused: c.Paused, Ordered: c.Ordered, Finishes: c.Finishes, Requeues: c.Requeues, Timeouts: c.Timeouts,
			})
		}
	}
	p.Rows = nil
}
