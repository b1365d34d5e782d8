package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/bench/child"
	"github.com/lockstepmq/lockstep/internal/bench"
)

const (
	body     = "xxxxxxxxxx"
	written  = "\x00\x00\x00\x0a" + body // in a log
	patience = 20 * time.Second
)

// TestMain is also a member: the chain starts the executable that it runs in.
func TestMain(m *testing.M) {
	child.Serve(memberCommand, member)
	os.Exit(m.Run())
}

// TestThreeCopies puts through every member, and finds each put, and that it was
// finished, in three files.
func TestThreeCopies(t *testing.T) {
	c, dir := started(t)
	w := bench.Workload{Kind: bench.Mixed, Connections: 2 * members, Consumers: members, Outstanding: 2, Size: len(body), Messages: 600}
	run, err := bench.Measure(t.Context(), w, &bench.Config{
		Addresses: c.addresses, Topic: "t", Bounds: bench.Bounds{Scale: 1, Timeout: patience}})
	if err != nil || run.Messages != w.Messages {
		t.Fatalf("%+v, %v", run, err)
	}
	checkLogs(t, dir, w.Messages)
}

// TestConsumersEverywhere has consumers at all members, two at one of them. Each
// message goes to one of them, as many to each as to any other, and what they
// finish is in the three files.
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
		d, come := await(got, patience)
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
	checkLogs(t, dir, len(at)*each)
}

// TestConsumerLeaves closes one consumer of each member: soon all messages go to
// the one that stays.
func TestConsumerLeaves(t *testing.T) {
	c, _ := started(t)
	const stays = members
	got := make(chan delivery, 1)
	subscribe(t, c.addresses[1], stays, got)
	for m := range members {
		subscribe(t, c.addresses[m], m, got).Close()
	}
	end := time.Now().Add(patience)
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

// TestBurst reads FINs that came together as one: not those behind another
// command, and without waiting for the rest of the last one.
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

// TestAnother knows whether a whole frame has come.
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

// started is a chain for one test, and the folder of its files.
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
	_ = l.SetDeadline(time.Now().Add(patience))
	for range n {
		if err := l.send(&group{messages: []byte(written), n: 1}); err != nil {
			t.Fatal(err)
		}
		if err := l.await(); err != nil {
			t.Fatal(err)
		}
	}
}

// delivery is a message that a consumer got.
type delivery struct {
	consumer int
	id, body string
}

// subscribe gives a consumer that tells what it gets, and finishes it.
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

// checkLogs finds n puts in every file, and soon n ids of finished messages, each
// once; then the files are equal.
func checkLogs(t *testing.T, dir string, n int) {
	size := n * (len(written) + idLength)
	for end := time.Now().Add(patience); ; time.Sleep(finishEvery) {
		var logs [members][]byte
		var puts, ids [members]int
		for i := range members {
			logs[i] = readLog(t, filepath.Join(dir, fmt.Sprint(i)), size+idLength)
			puts[i], ids[i] = count(logs[i])
		}
		switch {
		case bytes.Equal(logs[0], logs[1]) && bytes.Equal(logs[0], logs[2]) && puts[0] == n && ids[0] == n && logs[0][size] == 0:
			return
		case time.Now().After(end):
			t.Fatalf("of %d: %d puts, %d ids; or the logs are not equal, or too long", n, puts, ids)
		}
	}
}

// readLog reads the beginning of a file.
func readLog(t *testing.T, name string, size int) []byte {
	b := make([]byte, size)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// count counts puts and different ids. An id is digits, a put begins with a zero
// byte.
func count(log []byte) (puts, different int) {
	ids := map[string]bool{}
	for len(log) >= idLength && (log[0] != 0 || bytes.HasPrefix(log, []byte(written))) {
		if log[0] == 0 {
			puts, log = puts+1, log[len(written):]
		} else {
			ids[string(log[:idLength])] = true
			log = log[idLength:]
		}
	}
	return puts, len(ids)
}
