package bench

import (
	"context"
	"time"

	"github.com/lockstepmq/lockstep/internal/nsqclient"
)

const messageHeader = 26 // timestamp, attempts, id

// Output buffers in IDENTIFY. A stock nsqd keeps messages back until its buffer is full, the
// credit is used up or 250 ms have passed. That suits a backlog, but with messages that have
// just been published the figures would contain that wait.
const (
	usual = 0 // the broker's default
	none  = -1
)

// dial opens the i-th connection: connections are spread over the addresses.
func (cfg *Config) dial(i, outputBuffer int) (*nsqclient.Conn, error) {
	d := nsqclient.Dialer{TLS: cfg.TLS, Secret: cfg.Secret, Timeout: 5 * time.Second, Open: cfg.open, Identify: map[string]any{
		"client_id": "bench", "hostname": "bench", "heartbeat_interval": 60000, "output_buffer_size": outputBuffer,
	}}
	c, err := d.Dial(context.Background(), cfg.Addresses[i%len(cfg.Addresses)], cfg.Timeout)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(cfg.Timeout)) // bounds the whole run
}
