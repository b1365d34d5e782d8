package console

// shortTopic is a Topic, and shortChannel a Channel, as brokers send them to each other: a table of thousands of idle topics is a
// sixth of its length in the answers to the page. Fields may be added, in the same place of both.
type shortTopic struct {
	Topic             string   `json:"t"`
	Partitions        int      `json:"-"`
	ReplicationFactor int      `json:"-"`
	UnderReplicated   int      `json:"-"`
	Leaderless        int      `json:"-"`
	Fault             string   `json:"-"`
	Faulty            int      `json:"-"`
	Channels          int      `json:"-"`
	Paused            bool     `json:"p,omitempty"`
	Messages          uint64   `json:"m,omitempty"`
	Depth             int64    `json:"d,omitempty"`
	LagSeconds        float64  `json:"l,omitempty"`
	Puts              *float64 `json:"w,omitempty"`
	PutBytes          *float64 `json:"b,omitempty"`
	KeptBytes         *float64 `json:"k,omitempty"`
}

type shortChannel struct {
	Topic      string   `json:"-"`
	Channel    string   `json:"n"`
	Depth      int64    `json:"d,omitempty"`
	InFlight   int64    `json:"i,omitempty"`
	Deferred   int64    `json:"f,omitempty"`
	LagSeconds float64  `json:"l,omitempty"`
	Clients    int      `json:"s,omitempty"`
	Paused     bool     `json:"p,omitempty"`
	Ordered    bool     `json:"o,omitempty"`
	Finishes   *float64 `json:"r,omitempty"`
	Requeues   uint64   `json:"q,omitempty"`
	Timeouts   uint64   `json:"x,omitempty"`
}

// shortRow is a topic with its channels.
type shortRow struct {
	shortTopic
	Short []shortChannel `json:"c,omitempty"`
}

// compact is the part with short rows. The channels of each topic follow its place in the list.
func (p part) compact() part {
	p.Rows = make([]shortRow, 0, len(p.Topics))
	channels := make([]shortChannel, 0, len(p.Channels))
	for _, t := range p.Topics {
		from := len(channels)
		for len(channels) < len(p.Channels) && p.Channels[len(channels)].Topic == t.Topic {
			channels = append(channels, shortChannel(p.Channels[len(channels)]))
		}
		p.Rows = append(p.Rows, shortRow{shortTopic(t), channels[from:]})
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
		channels += len(p.Rows[i].Short)
	}
	p.Topics, p.Channels = make([]Topic, 0, len(p.Rows)), make([]Channel, 0, channels)
	for _, r := range p.Rows {
		t := Topic(r.shortTopic)
		t.Channels = len(r.Short)
		p.Topics = append(p.Topics, t)
		for _, c := range r.Short {
			c.Topic = t.Topic
			p.Channels = append(p.Channels, Channel(c))
		}
	}
	p.Rows = nil
}
