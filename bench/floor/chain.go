package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lockstepmq/lockstep/bench/child"
	"github.com/lockstepmq/lockstep/internal/test/bench"
)

const (
	loopback = "127.0.0.1:0"
	members  = 3

	// memberCommand is the first argument of a process that is a member.
	memberCommand = "member"

	// paced is the setting that every broker sets for itself.
	paced = "GODEBUG=schedtrace=2147483647"

	// fileBytes is the size of a member's file, which is written in a circle.
	fileBytes = 64 << 20
)

// A member's listeners, in the order in which it inherits their files.
const (
	forClients  = iota
	forForwards // from the other members: puts and subscribers of topics that this one leads
	forCopies   // from the other members: copies of the topics that they lead
	listeners

	firstFile = 3 // in every process, behind the standard ones
)

// chain is three members, each in a process of its own.
type chain struct {
	child.Processes
	addresses []string // for clients
}

// start starts the members; their files are in dir.
func start(dir string, sync bool) (*chain, error) {
	var files [members][]*os.File
	var addresses [listeners][]string
	for i := range members {
		for purpose := range listeners {
			f, at, err := listen()
			if err != nil {
				return nil, err
			}
			defer f.Close()
			files[i], addresses[purpose] = append(files[i], f), append(addresses[purpose], at)
		}
	}
	c := &chain{addresses: addresses[forClients]}
	for i := range members {
		args := []string{memberCommand, "-number", strconv.Itoa(i),
			"-file", filepath.Join(dir, strconv.Itoa(i)), fmt.Sprintf("-sync=%t", sync),
			"-forwards", strings.Join(addresses[forForwards], ","), "-copies", strings.Join(addresses[forCopies], ",")}
		if err := c.Start(args, []string{paced}, files[i]...); err != nil {
			c.Stop()
			return nil, err
		}
	}
	return c, nil
}

// listen returns a listener's file for a process to inherit: connections wait until that
// process has started.
func listen() (*os.File, string, error) {
	l, err := net.Listen("tcp", loopback)
	if err != nil {
		return nil, "", err
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	return f, l.Addr().String(), err
}

// member is one process.
func member(args []string) error {
	f := flag.NewFlagSet(memberCommand, flag.ContinueOnError)
	number := f.Int("number", 0, "index of this member in the lists of addresses")
	name := f.String("file", "", "file for this member's log")
	sync := f.Bool("sync", true, "sync before the answer")
	forwards := f.String("forwards", "", "addresses of all members for forwarded puts")
	copies := f.String("copies", "", "addresses of all members for copies")
	if err := f.Parse(args); err != nil {
		return err
	}
	file, err := bench.ZeroFile(*name, fileBytes)
	if err != nil {
		return err
	}
	defer file.Close()
	log := &log{file: file, sync: *sync}
	byLeader, err := nodes(*number, log, strings.Split(*forwards, ","), strings.Split(*copies, ","))
	if err != nil {
		return err
	}
	leading, copying := byLeader[*number], newNode(log)
	failed := make(chan error)
	for _, n := range append(byLeader[:], copying) {
		go func() { failed <- n.loop() }()
	}
	for purpose, s := range [listeners]server{
		forClients:  byLeader,
		forForwards: {leading, leading, leading}, // members send each other no topics
		forCopies:   {copying, copying, copying},
	} {
		go func() { failed <- s.serve(firstFile + uintptr(purpose)) }()
	}
	go func() {
		child.Orphaned()
		failed <- nil
	}()
	return <-failed
}

// nodes returns the nodes for a member's clients: its own node writes to the log and to the
// other members, a node for another leader only passes on to that leader.
func nodes(number int, log *log, forwards, copies []string) (byLeader server, err error) {
	leading := newNode(log)
	leading.subscribers.turn = uint64(number) << leaderShift
	for i := range members {
		if i == number {
			byLeader[i] = leading
			continue
		}
		byLeader[i] = newNode(nil)
		byLeader[i].leader = forwards[i]
		if err := errors.Join(byLeader[i].passOn(forwards[i]), leading.passOn(copies[i])); err != nil {
			return byLeader, err
		}
	}
	return byLeader, nil
}
