package clustercmd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
)

func TestBrokerState(t *testing.T) {
	for state, b := range map[string]console.Broker{
		"hangs":              {BrokerView: api.BrokerView{Alive: true, LowSpace: true, Hangs: true}, Answered: true},
		"unreachable":        {Unreachable: true},
		"dead":               {},
		"disk full":          {BrokerView: api.BrokerView{Alive: true, LowSpace: true}},
		"silent":             {BrokerView: api.BrokerView{Alive: true}},
		"leaving":            {BrokerView: api.BrokerView{Alive: true, Leaving: true}, Answered: true},
		"drained of leaders": {BrokerView: api.BrokerView{Alive: true, Drain: "leaders"}, Answered: true},
	} {
		require.Equal(t, state, brokerState(b))
	}
}
