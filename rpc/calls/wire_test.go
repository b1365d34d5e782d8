package calls

import (
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
		{Value: &PositionsReply{}, Golden: "919195a27331029103919304050607"},
		{Value: &ChannelPosition{}, Golden: "95a27331029103919304050607"},
		{Value: &TraceRequest{}, Golden: "93010203"},
		{Value: &TraceReply{}, Golden: "97a27331020304c40105069195a27337a27338090a91a3733131"},
		{Value: &ChannelTrace{}, Golden: "95a27331a27332030491a27335"},
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
		{Value: &PeekRequest{}, Golden: "97a2733102a2733304a27335c3c3"},
		{Value: &PeekReply{}, Golden: "96010203919aa2733405060708c40109a3733130c4010b0cc4010da3733134a3733135"},
		{Value: &PeekedMessage{}, Golden: "9aa2733102030405c40106a27337c4010809c4010a"},
		{Value: &ConsoleRequest{}, Golden: "91c40101"},
		{Value: &ConsoleReply{}, Golden: "91c40101"},
		{Value: &DigestRequest{}, Golden: "93a273310203"},
		{Value: &DigestReply{}, Golden: "9ba2733102a2733304050607089194090a0b0c0d0e"},
		{Value: &BatchDigest{}, Golden: "9401020304"},
	})
}

// A method carries marked structs of this package, and slices of them, alone: a struct of
// internal/api would travel with every change that an edge makes to it.
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
				name, ok := arg.(*ast.Ident)
				require.True(t, ok && marked[name.Name], "%s carries %s", spec.Names[0].Name, reflect.ValueOf(arg).Elem())
			}
			return true
		})
	}
	require.Equal(t, 23, methods)
}

// The conversions lose no field: what the edges have comes back from the wire.
func TestConversionsKeepTheFields(t *testing.T) {
	p := api.Peeked{Start: 1, End: 2, Next: 3, Mark: "m", NextMark: "n", Messages: []api.PeekedMessage{{
		ID: "id", Partition: 4, Sequence: 5, Time: 6, DeliverAt: 7, Header: []byte("{}"), Body: "b", Bytes: []byte{8}, Trace: 9, HeaderBytes: []byte{10},
	}}}
	wholeBut(t, p)
	wholeBut(t, p.Messages[0])
	require.Equal(t, p, PeekReplyOf(p).Edge())

	d := api.Digest{
		Node: "n", Store: 1, Role: "leader", Epoch: 2, Start: 3, Committed: 4, End: 5, Next: 6,
		Batches: []api.BatchDigest{{Offset: 7, Bytes: 8, Epoch: 9, CRC: 10}}, CommittedSequence: 11, EndSequence: 12,
	}
	wholeBut(t, d)
	require.Equal(t, DigestReply{
		Node: "n", Store: 1, Role: "leader", Epoch: 2, Start: 3, Committed: 4, End: 5, Next: 6,
		Batches: []BatchDigest{{Offset: 7, Bytes: 8, Epoch: 9, CRC: 10}}, CommittedSequence: 11, EndSequence: 12,
	}, DigestReplyOf(d))
}

// wholeBut requires that all fields are set but those that do not travel.
func wholeBut(t *testing.T, v any, local ...string) {
	t.Helper()
	s := reflect.ValueOf(v)
	for i := range s.NumField() {
		name := s.Type().Field(i).Name
		isLocal := false
		for _, l := range local {
			isLocal = isLocal || l == name
		}
		require.Equal(t, isLocal, s.Field(i).IsZero(), "%T.%s", v, name)
	}
}
