package msgstream_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/msgstream"
)

// sample writes a stream with a record of each kind.
func sample(t testing.TB) []byte {
	var b bytes.Buffer
	w := msgstream.NewWriter(&b)
	require.NoError(t, w.Info(msgstream.Info{Cluster: "east", Topic: "orders", TopicID: 7, TimeNS: 1, Partitions: []msgstream.PartitionInfo{{First: 5, End: 7}}}))
	require.NoError(t, w.Channel(msgstream.Channel{Name: "billing", Positions: []msgstream.Position{{Confirmed: 6, Deferred: []msgstream.DeferredPosition{{Sequence: 2, DeadlineNS: 9, Attempts: 3}}}}}))
	for _, m := range messages {
		require.NoError(t, w.Message(&m))
	}
	end, err := w.End()
	require.NoError(t, err)
	require.EqualValues(t, 3, end.Messages)
	return b.Bytes()
}

var messages = []msgstream.Message{
	{DeferredOnly: true, Sequence: 2, TimeNS: 3, Body: []byte("late")},
	{Sequence: 5, TimeNS: 4, DeliverAtNS: 8, Trace: 10, Header: []byte(`{"k":"v"}`), Body: []byte("one")},
	{Sequence: 6, TimeNS: 5, Body: []byte{0, 0xff}},
}

// golden is the sample stream. These bytes are in files: they do not change.
const golden = "4c4f434b535445502d4558504f525420310a010000006d7b22636c7573746572223a2265617374222c22746f706963223a226f7264657273222c22746f7069635f" +
	"6964223a2230303030303030303030303030303037222c2274696d65223a312c22706172746974696f6e73223a5b7b226669727374223a352c22656e64223a377d" +
	"5d7d0a20492002000000777b226368616e6e656c223a2262696c6c696e67222c22706f736974696f6e73223a5b7b22706172746974696f6e223a302c22636f6e66" +
	"69726d6564223a362c226465666572726564223a5b7b2273657175656e6365223a322c22646561646c696e65223a392c22617474656d707473223a337d5d7d5d7d" +
	"7287b4900300000029010000000000000000000200000000000000030000000000000000000000000000000000006c617465b2681bbc0300000031000000000000" +
	"000000000500000000000000040000000000000008000000000000000a00097b226b223a2276227d6f6e65ac29ee85030000002700000000000000000000060000" +
	"00000000000500000000000000000000000000000000000000ff1f71e8a204000000957b226d65737361676573223a332c22626f64795f6279746573223a392c22" +
	"706172746974696f6e73223a5b7b22706172746974696f6e223a302c226d65737361676573223a322c22646967657374223a223432613639353437363739333236" +
	"3366323933623230666563653465653932333332363866303932643364663262363561303265646438616130653737623061227d5d7de7a358e3"

func read(b []byte) (records []msgstream.Record, err error) {
	r := msgstream.NewReader(bytes.NewReader(b))
	for {
		x, err := r.Next()
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return records, err
		}
		if x.Message != nil {
			m := *x.Message
			m.Body, m.Header = bytes.Clone(m.Body), bytes.Clone(m.Header)
			x.Message = &m
		}
		records = append(records, x)
	}
}

func TestGoldenBytes(t *testing.T) {
	require.Equal(t, golden, hex.EncodeToString(sample(t)))
}

func TestStreamsAreReadAsWritten(t *testing.T) {
	records, err := read(sample(t))
	require.NoError(t, err)
	require.Len(t, records, 6)
	require.Equal(t, "orders", records[0].Info.Topic)
	require.EqualValues(t, 2, records[1].Channel.Positions[0].Low())
	for i, m := range messages {
		require.Equal(t, m, *records[2+i].Message)
	}
	require.EqualValues(t, 2, records[5].End.Partitions[0].Messages, "without the deferred one")
}

// Every byte counts: a stream with one bit changed, or cut anywhere, is refused, and the place is not
// behind the change.
func TestDamageIsFoundWithItsPlace(t *testing.T) {
	whole := sample(t)
	for at := range whole {
		for _, bit := range []byte{1, 0x80} {
			altered := bytes.Clone(whole)
			altered[at] ^= bit
			_, err := read(altered)
			var damage *msgstream.Damage
			require.ErrorAs(t, err, &damage, "byte %d", at)
			require.LessOrEqual(t, damage.Offset, int64(at), "byte %d", at)
		}
		_, err := read(whole[:at])
		var damage *msgstream.Damage
		require.ErrorAs(t, err, &damage, "cut at %d", at)
		require.LessOrEqual(t, damage.Offset, int64(at))
	}
	_, err := read(append(bytes.Clone(whole), 'x'))
	require.ErrorContains(t, err, "torn")
	_, err = read(append(bytes.Clone(whole), whole...))
	require.ErrorContains(t, err, "bytes follow the end record")
}

// Records that are removed, repeated or exchanged have right checksums of their own.
func TestRecordsKeepTheirPlaces(t *testing.T) {
	whole := sample(t)
	var places []int
	in := bytes.NewReader(whole)
	r := msgstream.NewReader(in)
	for {
		_, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		places = append(places, len(whole)-in.Len())
	}
	part := func(i int) []byte { return whole[places[i-1]:places[i]] } // record i+1
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	head := whole[:places[1]]
	for name, b := range map[string][]byte{
		"removed":   join(head, part(2), part(4), part(5)),
		"repeated":  join(head, part(2), part(3), part(3), part(4), part(5)),
		"exchanged": join(head, part(3), part(2), part(4), part(5)),
		"no end":    join(head, part(2), part(3), part(4)),
	} {
		_, err := read(b)
		var damage *msgstream.Damage
		require.ErrorAs(t, err, &damage, name)
	}
}

func TestMessagesAlone(t *testing.T) {
	var b []byte
	crc, err := uint32(0), error(nil)
	for i := range messages {
		b, crc, err = msgstream.AppendMessage(b, crc, &messages[i])
		require.NoError(t, err)
	}
	r := msgstream.NewMessageReader(bytes.NewReader(b))
	for _, want := range messages {
		x, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, want.Sequence, x.Message.Sequence)
	}
	_, err = r.Next()
	require.ErrorIs(t, err, io.EOF)
	_, err = msgstream.NewMessageReader(bytes.NewReader(b[:len(b)-1])).Next()
	require.NoError(t, err)
	_, err = msgstream.NewMessageReader(bytes.NewReader(b[1:])).Next()
	var damage *msgstream.Damage
	require.ErrorAs(t, err, &damage)
}

func TestOrigins(t *testing.T) {
	o := msgstream.Origin{Cluster: "a:b@c", TopicID: 12, Partition: 3, Sequence: 99}
	for _, channel := range []string{"", "billing"} {
		o.Channel = channel
		got, ok := msgstream.OriginOf(msgstream.WithOrigin(nil, o))
		require.True(t, ok)
		require.Equal(t, o, got)
	}
	for _, bad := range []string{"", "x", "1:2:3", "c:1:70000:3", "c:1:2:x", "c:-1:2:3", "c:g:2:3"} {
		_, ok := msgstream.OriginOf([]byte(`{"##origin":"` + bad + `"}`))
		require.False(t, ok, bad)
	}
}

func TestHeadersKeepTheirFields(t *testing.T) {
	o := msgstream.Origin{Cluster: "east", TopicID: 1, Partition: 2, Sequence: 3}
	for header, want := range map[string]string{
		"":                        `{"##origin":"east:0000000000000001:2:3"}`,
		"{}":                      `{"##origin":"east:0000000000000001:2:3"}`,
		` { "k" : "<v>" }`:        `{"##origin":"east:0000000000000001:2:3","k" : "<v>" }`,
		`{"##origin":"x:9:9:9"}`:  `{"##origin":"east:0000000000000001:2:3"}`,
		`{"a":1,"##origin":"x"}`:  `{"##origin":"east:0000000000000001:2:3","a":1}`,
		`no JSON`:                 `{"##origin":"east:0000000000000001:2:3"}`,
		`[1]`:                     `{"##origin":"east:0000000000000001:2:3"}`,
		`{"##only_channel":"c1"}`: `{"##origin":"east:0000000000000001:2:3","##only_channel":"c1"}`,
	} {
		got := msgstream.WithOrigin([]byte(header), o)
		require.Equal(t, want, string(got))
		require.True(t, json.Valid(got))
		found, ok := msgstream.OriginOf(got)
		require.True(t, ok)
		require.Equal(t, o, found)
	}
	o.TimeNS = 1700000000000000007
	for _, header := range []string{"", `{"##origin":"x","##origin_time":"1","k":"v"}`, `{"##origin_time":"1"}`} {
		got := msgstream.WithOrigin([]byte(header), o)
		require.True(t, json.Valid(got))
		found, ok := msgstream.OriginOf(got)
		require.True(t, ok)
		require.Equal(t, o, found, "%s", got)
	}
	o.TimeNS = 0
	o.Channel = "c2"
	require.Equal(t, `{"##origin":"east:0000000000000001:2:3@c2","##only_channel":"c2"}`, string(msgstream.WithOrigin([]byte(`{"##only_channel":"c1"}`), o)))
	_, ok := msgstream.OriginOf([]byte(`{"##ORIGIN":"east:0000000000000001:2:3"}`))
	require.False(t, ok)
}

func TestWritersRefuseWhatDoesNotFit(t *testing.T) {
	_, _, err := msgstream.AppendMessage(nil, 0, &msgstream.Message{Header: []byte(strings.Repeat("x", 1<<16)), Body: []byte("b")})
	require.Error(t, err)
}

// FuzzReader: damage is an error, never a panic, and a stream that is read is whole.
func FuzzReader(f *testing.F) {
	f.Add(sample(f))
	f.Add([]byte(msgstream.Magic))
	f.Add(sample(f)[:90])
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := read(b)
		var damage *msgstream.Damage
		if err != nil {
			require.ErrorAs(t, err, &damage)
			require.LessOrEqual(t, damage.Offset, int64(len(b)))
			return
		}
		require.NotNil(t, records[0].Info)
		require.NotNil(t, records[len(records)-1].End)
	})
}

// FuzzMessages: the body of POST /v1/topic/append.
func FuzzMessages(f *testing.F) {
	b, _, _ := msgstream.AppendMessage(nil, 0, &messages[1])
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := msgstream.NewMessageReader(bytes.NewReader(b))
		for {
			x, err := r.Next()
			if err != nil {
				return
			}
			again, _, err := msgstream.AppendMessage(nil, 0, x.Message)
			require.NoError(t, err)
			require.NotEmpty(t, again)
		}
	})
}

// FuzzOrigin: whatever header a message has, that of its copy is a JSON object with the origin, and a copy of the copy has the last origin.
func FuzzOrigin(f *testing.F) {
	for _, header := range []string{``, `{}`, ` { "a" : "b" } `, `{"##origin":"x"}`, `{"\u0023#origin":"x","##origin":1}`, `[]`, `null`, `{"a":1}x`, "\xff"} {
		f.Add([]byte(header), "east:1", "c")
	}
	f.Fuzz(func(t *testing.T, header []byte, cluster, channel string) {
		if !utf8.ValidString(cluster) || !utf8.ValidString(channel) || strings.ContainsAny(channel, ":@") || strings.Contains(cluster, "@") {
			return
		}
		first := msgstream.Origin{Cluster: cluster, TopicID: 7, Partition: 3, Sequence: 70, Channel: channel, TimeNS: 5}
		last := msgstream.Origin{Cluster: "west", TopicID: 8, Sequence: 71}
		for _, o := range []msgstream.Origin{first, last} {
			header = msgstream.WithOrigin(header, o)
			if !json.Valid(header) {
				t.Fatalf("no JSON: %q", header)
			}
			if got, ok := msgstream.OriginOf(header); !ok || got.Cluster != o.Cluster || got.Sequence != o.Sequence || got.Channel != o.Channel || o.TimeNS != 0 && got.TimeNS != o.TimeNS {
				t.Fatalf("%+v, %+v: %q", o, got, header)
			}
		}
	})
}
