package clustertest

import (
	"errors"
	"io"
	"log"
	"net"
	"strings"

	"github.com/nsqio/go-nsq"

	"github.com/lockstepmq/lockstep/internal/e2e/history"
)

// Silent is a logger for go-nsq: connections that break are what is tested.
func Silent() *log.Logger { return log.New(io.Discard, "", 0) }

// Producers are one client's connections, one to each broker that it has put to.
// One goroutine uses them.
type Producers struct {
	config *nsq.Config
	conns  map[string]*nsq.Producer
}

// NewProducers makes none yet.
func NewProducers(config *nsq.Config) *Producers {
	return &Producers{config: config, conns: map[string]*nsq.Producer{}}
}

// At is the connection to the broker at a TCP address. It connects with the
// first put, and again after a failure.
func (p *Producers) At(address string) *nsq.Producer {
	if p.conns[address] == nil {
		conn, err := nsq.NewProducer(address, p.config)
		if err != nil {
			panic(err) // the configuration is ours
		}
		conn.SetLogger(Silent(), nsq.LogLevelError)
		p.conns[address] = conn
	}
	return p.conns[address]
}

// Stop ends the connections.
func (p *Producers) Stop() {
	for _, conn := range p.conns {
		conn.Stop()
	}
}

// Classify turns what go-nsq returned for a put into what its producer knows.
func Classify(err error) history.Answer {
	var dial *net.OpError
	var told nsq.ErrProtocol
	switch {
	case err == nil:
		return history.OK
	case errors.As(err, &told) && strings.Contains(told.Reason, "rolled back"):
		return history.RolledBack
	case errors.As(err, &told) && !strings.Contains(told.Reason, "in doubt"):
		return history.Refused
	case errors.As(err, &dial) && dial.Op == "dial":
		return history.Refused
	}
	return history.InDoubt
}
