package calls

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wiretest"
	"github.com/lockstepmq/lockstep/rpc"
)

func TestGoldenBytes(t *testing.T) {
	wiretest.Check(t, wiretest.Codec{Marshal: rpc.Marshal, Unmarshal: rpc.Unmarshal}, []wiretest.Struct{
		{Value: &None{}, Golden: "90"},
		{Value: &SpaceNotice{}, Golden: "92a27331c3"},
		{Value: &BusyReply{}, Golden: "9101"},
		{Value: &ReachesReply{}, Golden: "91c3"},
		{Value: &ReachesRequest{}, Golden: "92a2733102"},
		{Value: &HideNotice{}, Golden: "92a27331a27332"},
		{Value: &QueueOp{}, Golden: "9b0102a27333a2733405a27336c3c3c3c30b"},
		{Value: &QueueOps{}, Golden: "929b0102a27333a2733405a27336c3c3c3c30b910c"},
		{Value: &QueuesDone{}, Golden: "919101"},
		{Value: &DeferredRequest{}, Golden: "950102a27333049105"},
		{Value: &DeferredReply{}, Golden: "92919301020304"},
		{Value: &DeferredMessage{}, Golden: "93010203"},
		{Value: &SeekRequest{}, Golden: "939b0102a27333a2733405a27336c3c3c3c30b910cc3"},
		{Value: &SeekReply{}, Golden: "9191970102030405c3c3"},
		{Value: &SeekMove{}, Golden: "970102030405c3c3"},
		{Value: &FinishRequest{}, Golden: "940102a273339104"},
		{Value: &FinishReply{}, Golden: "930102c3"},
		{Value: &PositionsRequest{}, Golden: "920102"},
		{Value: &TraceRequest{}, Golden: "93010203"},
		{Value: &SettleRequest{}, Golden: "960102a27333a27334059193060708"},
		{Value: &Receipt{}, Golden: "93010203"},
		{Value: &SettleReply{}, Golden: "91919301c3c3"},
		{Value: &SettleRefusal{}, Golden: "9301c3c3"},
		{Value: &IdleRequest{}, Golden: "9101"},
		{Value: &IdleReply{}, Golden: "929194010203049196050607a27338090a"},
		{Value: &IdlePartition{}, Golden: "9401020304"},
		{Value: &IdleChannel{}, Golden: "96010203a273340506"},
		{Value: &PrepareRequest{}, Golden: "94a27331029103a27334"},
		{Value: &Prepared{}, Golden: "919101"},
		{Value: &EndsReply{}, Golden: "93919501020304059196060708090a0b91940c0d0e0f"},
		{Value: &PartitionEnd{}, Golden: "950102030405"},
		{Value: &PartitionStart{}, Golden: "9401020304"},
		{Value: &DamagedPlace{}, Golden: "96010203040506"},
		{Value: &BatchesRequest{}, Golden: "93010203"},
		{Value: &BatchesReply{}, Golden: "91c40101"},
		{Value: &TransferRequest{}, Golden: "930102a27333"},
		{Value: &DiscardRequest{}, Golden: "93010203"},
		{Value: &ConsoleJSON{}, Golden: "91c40101"},
	})
}

// A method carries marked structs of this package, or JSON. A bare struct of internal/api would be encoded by
// the places of its fields, which follow the HTTP API.
func TestMethodsCarryMarkedStructs(t *testing.T) {
	marked, methods := wiretest.Marked(t), 0
	for _, f := range wiretest.Files(t) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			method, ok := spec.Type.(*ast.IndexListExpr)
			if !ok {
				return true
			}
			methods++
			for _, arg := range method.Indices {
				if list, ok := arg.(*ast.ArrayType); ok {
					arg = list.Elt
				}
				if json, ok := arg.(*ast.IndexExpr); ok {
					require.Equal(t, "JSON", json.X.(*ast.Ident).Name, spec.Names[0].Name)
					continue
				}
				name, ok := arg.(*ast.Ident)
				require.True(t, ok && marked[name.Name], "%s carries %s", spec.Names[0].Name, reflect.ValueOf(arg).Elem())
			}
			return true
		})
	}
	require.Equal(t, 23, methods)
}

// A value of the API arrives as it was sent, with all its fields and nothing but its JSON on the wire.
func TestJSONKeepsTheFields(t *testing.T) {
	sent := JSON[api.Peeked]{Value: api.Peeked{Start: 1, End: 2, Next: 3, Mark: "m", NextMark: "n", Messages: []api.PeekedMessage{{
		ID: "id", Partition: 4, Sequence: 5, Time: 6, DeliverAt: 7, Header: []byte("{}"), Body: "b", Bytes: []byte{8}, Trace: 9, HeaderBytes: []byte{10},
	}}}}
	for _, v := range []any{sent.Value, sent.Value.Messages[0]} {
		s := reflect.ValueOf(v)
		for i := range s.NumField() {
			require.False(t, s.Field(i).IsZero(), "%T.%s", v, s.Type().Field(i).Name)
		}
	}
	b, err := rpc.Marshal(sent)
	require.NoError(t, err)
	text, err := json.Marshal(sent.Value)
	require.NoError(t, err)
	require.True(t, bytes.HasSuffix(b, text), "%s", b)
	var got JSON[api.Peeked]
	require.NoError(t, rpc.Unmarshal(b, &got))
	require.Equal(t, sent, got)
	require.Error(t, rpc.Unmarshal(b[:len(b)-1], &got))
}
