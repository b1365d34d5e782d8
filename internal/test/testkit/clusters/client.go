package clusters

import (
	"errors"
	"io"
	"log"
	"net"
	"strings"

	"github.com/nsqio/go-nsq"

	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// Silent returns a go-nsq logger that discards everything: these tests break connections on purpose.
func Silent() *log.Logger { return log.New(io.Discard, "", 0) }

// Producers holds one client's connections, one to each broker that it has published to.
// Only one goroutine may use it.
type Producers struct {
	config *nsq.Config
	conns  map[string]*nsq.Producer
}

// NewProducers returns Producers without a connection.
func NewProducers(config *nsq.Config) *Producers {
	return &Producers{config: config, conns: map[string]*nsq.Producer{}}
}

// At returns the connection to the broker at a TCP address. The connection opens at its first
// put, and again at the first put after a failure.
func (p *Producers) At(address string) *nsq.Producer {
	if p.conns[address] == nil {
		conn, err := nsq.NewProducer(address, p.config)
		if err != nil {
			panic(err) // only an invalid configuration fails, and this one is fixed
		}
		conn.SetLogger(Silent(), nsq.LogLevelError)
		p.conns[address] = conn
	}
	return p.conns[address]
}

// Stop closes the connections.
func (p *Producers) Stop() {
	for _, conn := range p.conns {
		conn.Stop()
	}
}

// Classify maps the error of a go-nsq put to its outcome for the producer.
func Classify(err error) judge.Answer {
	var dial *net.OpError
	var answer nsq.ErrProtocol
	switch {
	case err == nil:
		return judge.OK
	case errors.As(err, &answer) && strings.Contains(answer.Reason, "rolled back"):
		return judge.RolledBack
	case errors.As(err, &answer) && !strings.Contains(answer.Reason, "in doubt"):
		return judge.Refused
	case errors.As(err, &dial) && dial.Op == "dial":
		return judge.Refused
	}
	return judge.InDoubt
}
