package gateway

import (
	"errors"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/metrics"
)

// answerOf names the errors that operators tell apart.
var answerOf = []struct {
	err    error
	answer metrics.Answer
}{
	{edge.ErrNotEnough, metrics.PutNotEnough},
	{edge.ErrRolledBack, metrics.PutRolledBack},
	{edge.ErrInDoubt, metrics.PutInDoubt},
	{edge.ErrNoLeader, metrics.PutNoLeader},
	{edge.ErrTopicFull, metrics.PutTopicFull},
	{edge.ErrDiskFull, metrics.PutDiskFull},
}

// count records what a producer is told.
func (g *Gateway) count(err error) {
	answer := metrics.PutOK
	if err != nil {
		answer = metrics.PutRefused
		for _, known := range answerOf {
			if errors.Is(err, known.err) {
				answer = known.answer
			}
		}
	}
	g.o.Metrics.Answered(answer)
}
