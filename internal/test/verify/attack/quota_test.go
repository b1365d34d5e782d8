package attack

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/nsqtext"

	"github.com/lockstepmq/lockstep/internal/api"
)

// partitions counts those of the whole cluster.
func (b *broker) partitions() (topics, partitions int) {
	b.t.Helper()
	var v api.ClusterView
	a := b.ask(bootstrap, "GET", "/v1/cluster", "")
	require.Equal(b.t, 200, a.status, a.body)
	require.NoError(b.t, json.Unmarshal([]byte(a.body), &v))
	for _, t := range v.Topics {
		partitions += len(t.Partitions)
	}
	return len(v.Topics), partitions
}

// TestTopicsHaveAnEnd is finding 10: who may create topics does not fill the cluster with
// them, neither a user nor all clients together.
func TestTopicsHaveAnEnd(t *testing.T) {
	t.Parallel()
	b := start(t, options{env: []string{"NSQD_MAX_TOPICS=20", "NSQD_MAX_PARTITIONS=300", "NSQD_MAX_CHANNELS=10"}})
	shop := b.user("shop", "*", "publish,consume,administer")
	b.until("the quota is set", func() bool {
		return b.ask(bootstrap, "POST", "/v1/user/quota?name=shop&topics=10&partitions=100", "").status == 200
	})
	made := 0
	for i := range 20 {
		if b.ask(shop, "POST", fmt.Sprintf("/pub?topic=by-put-%d", i), "m").status == 200 {
			made++
		}
	}
	require.Equal(t, 10, made, "topics that a user makes by publishing")
	require.Equal(t, 403, b.ask(shop, "POST", "/topic/create?topic=one-more", "").status)

	made = 0
	for i := range 6 { // of the administrator, who has no quota
		if b.ask(bootstrap, "POST", fmt.Sprintf("/topic/create?topic=large-%d&partitions=200", i), "").status == 200 {
			made++
		}
	}
	require.Equal(t, 1, made, "topics of 200 partitions")
	for i := range 25 {
		b.ask(bootstrap, "POST", fmt.Sprintf("/topic/create?topic=small-%d", i), "")
		b.ask(bootstrap, "POST", fmt.Sprintf("/channel/create?topic=large-0&channel=c%d", i), "")
	}
	topics, partitions := b.partitions()
	require.LessOrEqual(t, topics, 20)
	require.LessOrEqual(t, partitions, 300)
	var v struct{ Channels []string }
	require.NoError(t, json.Unmarshal([]byte(b.ask(bootstrap, "GET", "/channels?topic=large-0", "").body), &v))
	require.LessOrEqual(t, len(v.Channels), 10)
	require.Equal(t, 200, b.ask(shop, "POST", "/pub?topic=by-put-0", "m").status, "a topic that is there")
	b.until("the broker is ready", b.isReady)
}

// TestTopicsOfAUserHaveAPace: one credential made 616 topics in 10 s by publishing. A user without a quota of its own has that of
// all users.
func TestTopicsOfAUserHaveAPace(t *testing.T) {
	t.Parallel()
	b := start(t, options{})
	shop := b.user("shop", "*", "publish")
	began, made := time.Now(), 0
	for i := range 300 {
		switch a := b.ask(shop, "POST", fmt.Sprintf("/pub?topic=by-put-%d", i), "m"); {
		case a.status == 200:
			made++
		default:
			require.Equal(t, 429, a.status, a.body)
			require.Contains(t, a.body, "user shop has created 100 topics within seconds")
		}
	}
	took := time.Since(began)
	t.Logf("%d topics in %v", made, took)
	require.LessOrEqual(t, made, 101+5*int(took/time.Second+1))
	require.GreaterOrEqual(t, made, 100)
	require.Equal(t, 200, b.ask(shop, "POST", "/pub?topic=by-put-0", "m").status, "a topic that is there")
	require.Equal(t, 200, b.ask(bootstrap, "POST", "/topic/create?topic=of-the-administrator", "").status)
}

// TestACompressedBomb is finding 10: 317 KB of deflate were 412 MiB on the disk. The ratio is bounded, also for a user
// without a quota.
func TestACompressedBomb(t *testing.T) {
	b := start(t, options{})
	b.create("orders")
	shop := b.user("shop", "orders", "publish")
	memory, disk := b.memory(), b.disk()
	b.resetPeak()
	c, err := b.connect("")
	require.NoError(t, err)
	defer c.conn.Close()
	text, err := c.command("IDENTIFY", `{"feature_negotiation":true,"deflate":true,"deflate_level":6}`)
	expect(t, `{"max_rdy_count"`, text, err)
	var bomb bytes.Buffer
	w, err := flate.NewWriter(&bomb, flate.BestCompression)
	require.NoError(t, err)
	_, err = io.WriteString(w, "AUTH\n"+nsqtext.Sized(shop))
	require.NoError(t, err)
	const puts = 400
	for range puts {
		_, err = io.WriteString(w, "PUB orders\n"+nsqtext.Sized(strings.Repeat("\x00", 1<<20)))
		require.NoError(t, err)
	}
	require.NoError(t, w.Flush())
	require.Less(t, bomb.Len(), 1<<20)
	sent := make(chan error, 1)
	go func() {
		_, err := c.conn.Write(bomb.Bytes())
		sent <- err
	}()
	over := &client{conn: c.conn, in: bufio.NewReader(flate.NewReader(c.in))} // c.in may have the first answer already
	stored := 0
	for {
		_, text, err := over.next()
		require.NoError(t, err, "%d stored", stored)
		if text == "OK" {
			stored++
		}
		if strings.HasPrefix(text, "E_BAD_BODY input is compressed too well") {
			break
		}
	}
	<-sent // the broker may have closed the connection before it has read all
	t.Logf("%d KiB of deflate: %d puts of 1 MiB stored; %d MiB more on the disk, %d MiB more memory at the most",
		bomb.Len()>>10, stored, (b.disk()-disk)>>20, (b.peakMemory()-memory)>>20)
	require.Less(t, stored, puts/8)
	require.Less(t, b.peakMemory()-memory, int64(256<<20))
	require.NoError(t, b.client(t, bootstrap).put("orders", "m"), "another user")
}

// disk is the size of the files below the data path.
func (b *broker) disk() (size int64) {
	_ = filepath.WalkDir(b.dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil { // it may be gone in the meantime
				size += info.Size()
			}
		}
		return nil
	})
	return size
}
