package tcp_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/s2"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// TestRateLimitedPuts: a put beyond the user's rate is refused definitely, and the connection stays open.
func TestRateLimitedPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, root, with := closed(t)
		b := newBroker(t, piped, with)
		token, err := r.Create(t.Context(), access.NewUser{Name: "shop"})
		require.NoError(t, err)
		require.NoError(t, r.Grant(t.Context(), "shop", "t", access.Publish))
		few := int64(3)
		require.NoError(t, r.SetQuota(t.Context(), "shop", access.QuotaChange{PutRate: &few}))
		c := b.dial()
		c.send("AUTH\n" + sized(token))
		c.read()
		c.send("MPUB t\n" + multi("1", "2", "3"))
		c.response("OK")
		for send, want := range map[string]string{
			"PUB t\n" + sized("m"):              "E_PUB_FAILED PUB failed rate limited, not stored",
			"MPUB t\n" + multi("m", "n"):        "E_MPUB_FAILED MPUB failed rate limited, not stored",
			"DPUB t 1\n" + sized("m"):           "E_DPUB_FAILED DPUB failed rate limited, not stored",
			"PUB_EXT t\n" + sized(ext("", "m")): "E_PUB_FAILED PUB failed rate limited, not stored",
		} {
			c.send(send)
			c.error(want)
		}
		require.Equal(t, []int{3}, b.cluster.Puts())
		other := b.dial()
		other.send("AUTH\n" + sized(root))
		other.read()
		other.publish("t", "of another user")
	})
}

// TestOneChannelTakesTheRightToAdminister: a message for one channel alone is hidden from all
// others, those that archive and audit too.
func TestOneChannelTakesTheRightToAdminister(t *testing.T) {
	r, _, with := closed(t)
	var audit *guard.Audit
	b := newBroker(t, with, func(s *setup) { audit = s.backend.Guard.Audit })
	tokens := map[string]string{}
	for name, rights := range map[string]access.Right{"writer": access.Publish, "keeper": access.Publish | access.Administer} {
		var err error
		tokens[name], err = r.Create(t.Context(), access.NewUser{Name: name})
		require.NoError(t, err)
		require.NoError(t, r.Grant(t.Context(), name, "t", rights))
	}
	for _, header := range []string{
		`{"##only_channel":"ch"}`, `{"a":"##only_channel","##only_channel":"ch"}`,
		`{"\u0023#only_channel":"ch"}`, `{"##only_channe\u006c":"ch"}`, "{\"##only_\u0063hannel\":\"ch\"}",
	} {
		for verb, body := range map[string]string{"PUB_EXT": sized(ext(header, "m")), "MPUB_EXT": multi(ext("{}", "m"), ext(header, "m"))} {
			c := b.dial()
			c.send("AUTH\n" + sized(tokens["writer"]))
			c.read()
			c.send(verb + " t\n" + body)
			c.fatal(`E_UNAUTHORIZED AUTH failed for ` + verb + ` with ##only_channel on "t": it takes the right to administer the topic`)
			refused := audit.Entries()
			require.Contains(t, refused[len(refused)-1].Detail, "##only_channel on topic t: ")
			c = b.dial()
			c.send("AUTH\n" + sized(tokens["keeper"]))
			c.read()
			c.send(verb + " t\n" + body)
			c.response("OK")
		}
	}
	for _, header := range []string{`{"##ONLY_channel":"ch"}`, `{"a":"##only_channel","##only_CHANNEL":"ch"}`} {
		c := b.dial() // the channels would read it in any case of its letters
		c.send("AUTH\n" + sized(tokens["writer"]))
		c.read()
		c.send("PUB_EXT t\n" + sized(ext(header, "m")))
		require.Contains(t, c.read().data, "E_INVALID_JSON_HEADER")
		c.closed()
	}
	for name, value := range map[string]string{
		"##original_topic": `"other"`, "##original_channel": `"ch"`, "##original_id": `"0123456789abcdef"`, "##original_time": "1",
		"##original_header": `{"a":"b"}`, "##attempts": "4", "##redriven_id": `"0123456789abcdef"`,
	} { // a redrive of the other topic would publish the message there
		put := "PUB_EXT t\n" + sized(ext(`{"a":"b","`+name+`":`+value+`}`, "m"))
		c := b.dial()
		c.send("AUTH\n" + sized(tokens["writer"]))
		c.read()
		c.send(put)
		c.fatal(`E_UNAUTHORIZED AUTH failed for PUB_EXT with ` + name + ` on "t": it takes the right to administer the topic`)
		c = b.dial()
		c.send("AUTH\n" + sized(tokens["keeper"]))
		c.read()
		c.send(put)
		c.response("OK")
	}
	c := b.dial()
	c.send("AUTH\n" + sized(tokens["writer"]))
	c.read()
	c.send("PUB_EXT t\n" + sized(ext(`{"note":"##only_channel"}`, "m")))
	c.response("OK")

	open := newBroker(t).dial()
	open.send("PUB_EXT t\n" + sized(ext(`{"##only_channel":"ch"}`, "m")))
	open.response("OK")
}

// TestExpansionBeforeACommand: a client that may do nothing cannot have the broker decompress
// gigabytes; one whose command was allowed may send what compresses well.
func TestExpansionBeforeACommand(t *testing.T) {
	_, root, with := closed(t)
	for _, how := range []string{"deflate", "snappy"} {
		t.Run(how, func(t *testing.T) {
			b := newBroker(t, with)
			compressed := func() *client {
				c := b.dial()
				c.identify(`{"feature_negotiation":true,"` + how + `":true}`)
				c.compress(how)
				return c
			}
			c := compressed()
			nops := strings.Repeat("NOP\n", 1<<18)
			for range 64 { // 64 MiB
				if _, err := io.WriteString(c.w, nops); err != nil {
					break // the broker has ended the connection
				}
			}
			_ = c.w.(packer).Flush() // likewise
			f, err := c.next()
			if err == nil {
				require.Contains(t, f.data, "E_BAD_BODY input is compressed too well")
			} else {
				require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "64 MiB were taken")
			}

			c = compressed()
			c.send("AUTH\n" + sized(root))
			require.Contains(t, c.read().data, `"root"`)
			var text strings.Builder
			for i := 0; text.Len() < 1<<20; i++ {
				fmt.Fprintf(&text, `{"order":%d,"customer":%d,"state":"paid"}`, i, i*7919%100_003)
			}
			for range 8 {
				c.publish("t", text.String()[:1<<20]) // it compresses well
			}
			c.publish("t", "m")
		})
	}
}

// TestABombOfAClientWithRights: a client whose commands are allowed cannot have the broker store a thousand times what it
// sends: 200 KB of deflate would be 200 MB on the disk. It gets the reason.
func TestABombOfAClientWithRights(t *testing.T) {
	for _, how := range []string{"deflate", "snappy"} {
		t.Run(how, func(t *testing.T) {
			with, refused := counted(metrics.New(0))
			b := newBroker(t, with)
			c := b.dial()
			c.identify(`{"feature_negotiation":true,"` + how + `":true}`)
			var bomb bytes.Buffer
			if how == "deflate" {
				w, err := flate.NewWriter(&bomb, flate.BestCompression)
				require.NoError(t, err)
				for range 40 {
					_, err = io.WriteString(w, "PUB t\n"+sized(repeat("\x00", 1<<20)))
					require.NoError(t, err)
				}
				require.NoError(t, w.Flush())
			} else {
				w := s2.NewWriter(&bomb, s2.WriterBlockSize(64<<10), s2.WriterConcurrency(1))
				for range 40 {
					_, err := io.WriteString(w, "PUB t\n"+sized(repeat("\x00", 1<<20)))
					require.NoError(t, err)
				}
				require.NoError(t, w.Flush())
			}
			require.Less(t, bomb.Len(), 600<<10)
			go func() { _, _ = c.conn.Write(bomb.Bytes()) }() // until the broker closes
			c.r = unpack(how, c.r)
			c.response("OK")
			stored := 0
			f := c.read()
			for ; f.data == "OK"; f = c.read() {
				stored++
			}
			require.Regexp(t, `^E_BAD_BODY input is compressed too well: \d+ compressed bytes become more than \d+, above \d+ times as many; the last command is not stored: send such messages without compression$`, f.data)
			require.LessOrEqual(t, stored, 1+(64*bomb.Len())>>20)
			require.Less(t, stored, 20)
			require.Equal(t, 1, refused("tcp_expansion"))
		})
	}
}
