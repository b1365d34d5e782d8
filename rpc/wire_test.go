package rpc

import (
	"testing"

	"github.com/lockstepmq/lockstep/internal/test/testkit/wiretest"
)

func TestGoldenHeaders(t *testing.T) {
	wiretest.Check(t, wiretest.Codec{Marshal: Marshal, Unmarshal: Unmarshal}, []wiretest.Struct{
		{Value: &Hello{}, Golden: "95a27331a27332030405"},
		{Value: &helloHeader{}, Golden: "9495a27331a27332030405a27336c40107c40108"},
		{Value: &requestHeader{}, Golden: "9301a2733203"},
		{Value: &responseHeader{}, Golden: "9201930203a27334"},
		{Value: &Error{}, Golden: "930102a27333"},
	})
}
