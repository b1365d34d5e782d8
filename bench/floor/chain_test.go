package main

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/bench/child"
	"github.com/lockstepmq/lockstep/internal/test/bench"
)

const (
	body         = "xxxxxxxxxx"
	lengthOfBody = "\x00\x00\x00\x0a"
	written      = lengthOfBody + body // in a log
	stopTimeout  = 20 * time.Second
)

// TestMain is also a member: the chain starts its own executable.
func TestMain(m *testing.M) {
	child.Serve(memberCommand, member)
	os.Exit(m.Run())
}

// TestThreeCopies publishes through every member, and finds each put and its finish in three
// files.
func TestThreeCopies(t *testing.T) {
	c, dir := started(t)
	w := bench.Workload{Kind: bench.Mixed, Connections: 2 * members, Consumers: members, Outstanding: 2, Size: len(body), Messages: 600}
	run, err := bench.Measure(t.Context(), w, &bench.Config{
		Addresses: c.addresses, Topic: "t", Bounds: bench.Bounds{Scale: 1, Timeout: stopTimeout}})
	if err != nil || run.Messages != w.Messages {
		t.Fatalf("%+v, %v", run, err)
	}
	checkOrder(t, checkLogs(t, dir, w.Messages))
}

// TestEachLeadsAThird publishes to topics of all three leaders over each connection, and has
// consumers of each leader at each member. Every put and every finish is in three files, and a
// third of the messages are of each leader.
func TestEachLeadsAThird(t *testing.T) {
	c, dir := started(t)
	w := bench.Workload{Kind: bench.Flow, Connections: members + 1, Consumers: 1, Topics: members * members,
		Size: len(body), Rate: 3_000, Messages: 720}
	run, err := bench.Measure(t.Context(), w, &bench.Config{
		Addresses: c.addresses, Topic: "t_123456", Bounds: bench.Bounds{Scale: 1, Timeout: stopTimeout}})
	if err != nil || run.Messages != w.Messages {
		t.Fatalf("%+v, %v", run, err)
	}
	shares := map[string]int{}
	for id := range checkLogs(t, dir, w.Messages)[0].ids {
		shares[id[:2]]++
	}
	third := w.Messages / members
	if want := map[string]int{"00": third, "01": third, "02": third}; !maps.Equal(shares, want) {
		t.Errorf("messages of the leaders: %v", shares)
	}
}

// TestLeader: the leader of a topic follows from the names in a row with several topics.
func TestLeader(t *testing.T) {
	for name, want := range map[string]int{
		"bench_topics-200_123456_0": 0, "bench_topics-200_123456_2": 0, "bench_topics-200_123456_3": 1,
		"bench_topics-200_123456_8": 2, "bench_topics-200_123456_9": 0, "bench_topics-200_000003_199": 0,
		"bench_pub-1_000003": 0, "bench_topics_200_000005": 0, "chain": 0, "t": 0, "": 0, "t_": 0, "t_-5": 0,
	} {
		if got := leader([]byte(name)); got != want {
			t.Errorf("%s: %d, not %d", name, got, want)
		}
	}
}

// TestConsumersEverywhere has consumers at all members, two at one of them. Each message goes
// to one of them, all receive equally many, and their finishes are in the three files.
func TestConsumersEverywhere(t *testing.T) {
	c, dir := started(t)
	at := []int{0, 1, 1, 2}
	got := make(chan delivery, 1)
	for i, m := range at {
		subscribe(t, c.addresses[m], i, got)
	}
	const each = 150
	for m := range members {
		publish(t, c.addresses[m], len(at)*each/members)
	}
	ids, shares := map[string]bool{}, make([]int, len(at))
	for range len(at) * each {
		d, come := await(got, stopTimeout)
		if !come || d.body != body {
			t.Fatalf("%q after %d of %d", d.body, len(ids), len(at)*each)
		}
		ids[d.id] = true
		shares[d.consumer]++
	}
	if d, come := await(got, 50*time.Millisecond); come || len(ids) != len(at)*each {
		t.Errorf("%d ids of %d deliveries, then %+v", len(ids), len(at)*each, d)
	}
	for i, n := range shares {
		if n != each {
			t.Errorf("consumer %d got %d of %v", i, n, shares)
		}
	}
	checkOrder(t, checkLogs(t, dir, len(at)*each))
}

// TestConsumerLeaves closes one consumer of each member: soon all messages go to the remaining
// one.
func TestConsumerLeaves(t *testing.T) {
	c, _ := started(t)
	const stays = members
	got := make(chan delivery, 1)
	subscribe(t, c.addresses[1], stays, got)
	for m := range members {
		subscribe(t, c.addresses[m], m, got).Close()
	}
	end := time.Now().Add(stopTimeout)
	for inOrder := 0; inOrder < 2*(members+1); {
		if time.Now().After(end) {
			t.Fatal("those that have left still get messages")
		}
		publish(t, c.addresses[0], 1)
		if _, come := await(got, 50*time.Millisecond); come {
			inOrder++
		} else {
			inOrder = 0
		}
	}
}

// TestFinishesAreNotSynced writes to a file that cannot be synced.
func TestFinishesAreNotSynced(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	n := &node{log: &log{file: null, sync: true}}
	if err := n.commit(&group{finished: []byte("0000000000000001")}); err != nil {
		t.Error(err)
	}
	if err := n.commit(&group{messages: []byte(written), n: 1}); err == nil {
		t.Error("a put was not synced")
	}
}

// TestOneSyncForSeveral has a file that cannot be synced, with two appends that are already
// synced.
func TestOneSyncForSeveral(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	l := &log{file: null, sync: true}
	l.synced.n = 2
	for i, covered := range []bool{true, true, false} {
		if err := l.appendSynced([]byte(written)); (err == nil) != covered {
			t.Errorf("append %d: %v", i+1, err)
		}
	}
}

// TestBurst reads buffered FINs as one burst. It does not include those behind another
// command, and does not wait for the rest of an incomplete one.
func TestBurst(t *testing.T) {
	const one, two, other = "FIN 0000000000000001\n", "FIN 0000000000000002\n", "RDY 0000000000000250\n"
	p := reading(t, one+two+other+two+one[:9], one[9:])
	for _, want := range []string{one + two, other, two, one} {
		line, _, err := p.line()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(line, []byte(fin)) {
			line = p.burst(line)
		}
		if string(line) != want {
			t.Errorf("%q, not %q", line, want)
		}
	}
}

// TestAnother recognises a complete frame in the buffer.
func TestAnother(t *testing.T) {
	p := reading(t, ok+ok+ok[:3], ok[3:]+ok[:7], ok[7:])
	for i, want := range []bool{true, false, false, false} {
		if frame, err := p.sized(); err != nil || string(frame) != ok || p.another() != want {
			t.Errorf("frame %d: %q, %v; another: %t", i, frame, err, !want)
		}
	}
}

// reading is a peer that reads these parts, one at a time.
func reading(t *testing.T, parts ...string) *peer {
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close() })
	go func() { // ends with the parts, or the pipe
		for _, part := range parts {
			_, _ = there.Write([]byte(part))
		}
	}()
	return newPeer(here)
}

// started returns a chain for one test, and the directory of its files.
func started(t *testing.T) (*chain, string) {
	dir := t.TempDir()
	c, err := start(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c, dir
}

// publish puts n messages one after the other.
func publish(t *testing.T, address string, n int) {
	l, err := dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_ = l.SetDeadline(time.Now().Add(stopTimeout))
	for range n {
		if err := l.send(&group{messages: []byte(written), n: 1}); err != nil {
			t.Fatal(err)
		}
		if err := l.await(); err != nil {
			t.Fatal(err)
		}
	}
}

// delivery is a received message.
type delivery struct {
	consumer int
	id, body string
}

// subscribe starts a consumer that reports its messages and finishes them.
func subscribe(t *testing.T, address string, consumer int, got chan<- delivery) *peer {
	l, err := dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := newPeer(l)
	_, _ = p.Write([]byte("SUB t c\nRDY 250\n"))
	if answer, err := p.sized(); err != nil || string(answer) != ok {
		t.Fatalf("%q, %v", answer, err)
	}
	go func() { // ends with the connection
		for {
			frame, err := p.sized()
			if err != nil {
				return
			}
			d := delivery{consumer, string(frame[beforeID : beforeID+idLength]), string(frame[beforeID+idLength:])}
			_, _ = p.Write([]byte(fin + d.id + "\n"))
			select {
			case got <- d:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return p
}

func await(got <-chan delivery, within time.Duration) (delivery, bool) {
	select {
	case d := <-got:
		return d, true
	case <-time.After(within):
		return delivery{}, false
	}
}

// contents counts each body and each id that a member has written.
type contents struct {
	all         []byte
	bodies, ids map[string]int
}

// checkLogs waits until every file has the same n puts, and the same n ids of finished
// messages, each once, and nothing else.
func checkLogs(t *testing.T, dir string, n int) (logs [members]contents) {
	size := n * (len(written) + idLength)
	for end := time.Now().Add(stopTimeout); ; time.Sleep(finishEvery) {
		whole := true
		for i := range members {
			l := readLog(t, filepath.Join(dir, fmt.Sprint(i)), size+idLength)
			logs[i] = l
			whole = whole && len(l.all) == size && len(l.ids) == n &&
				maps.Equal(l.bodies, logs[0].bodies) && maps.Equal(l.ids, logs[0].ids)
		}
		switch {
		case whole:
			return logs
		case time.Now().After(end):
			for i, l := range logs {
				t.Errorf("file %d: %d of %d bytes, with %d ids of %d", i, len(l.all), size, len(l.ids), n)
			}
			t.FailNow()
		}
	}
}

// checkOrder checks that the files are equal: a single leader orders all puts.
func checkOrder(t *testing.T, logs [members]contents) {
	for i, l := range logs {
		if !bytes.Equal(l.all, logs[0].all) {
			t.Errorf("file %d has another order than file 0", i)
		}
	}
}

// readLog reads the written part of a file. An id is digits, a put begins with a zero byte and
// has a length.
func readLog(t *testing.T, name string, size int) contents {
	b := make([]byte, size)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	c := contents{bodies: map[string]int{}, ids: map[string]int{}}
	rest := b
	for len(rest) >= idLength && (rest[0] != 0 || bytes.HasPrefix(rest, []byte(lengthOfBody))) {
		if rest[0] == 0 {
			c.bodies[string(rest[len(lengthOfBody):len(written)])]++
			rest = rest[len(written):]
		} else {
			c.ids[string(rest[:idLength])]++
			rest = rest[idLength:]
		}
	}
	c.all = b[:len(b)-len(rest)]
	return c
}
