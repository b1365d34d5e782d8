package clustercmd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
)

func TestBrokerState(t *testing.T) {
	for state, b := range map[string]console.Broker{"hangs": {Alive: true, Answered: true, LowSpace: true, Hangs: true}, "unreachable": {Unreachable: true}, "dead": {}, "disk full": {Alive: true, LowSpace: true}, "silent": {Alive: true}, "leaving": {Alive: true, Answered: true, Leaving: true}, "drained of leaders": {Alive: true, Answered: true, Drain: api.BrokerView{Drain: "leaders"}.Drain}} {
		require.Equal(t, state, brokerState(b))
	}
}
