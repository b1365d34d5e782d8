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
	"github.com/lockstepmq/lockstep/internal/bench"
)

const (
	loopback = "127.0.0.1:0"
	members  = 3

	// memberCommand is the first argument of a process that is a member.
	memberCommand = "member"

	// The open files that a member inherits; the first has no copies listener.
	clientsFile = 3
	copiesFile  = 4

	// paced is what every broker sets for itself.
	paced = "GODEBUG=schedtrace=2147483647"

	// fileBytes is the size of a member's file, written round and round.
	fileBytes = 64 << 20
)

// chain is three members, each in a process of its own.
type chain struct {
	child.Processes
	addresses []string // of their clients
}

// start starts the members; their files are in dir.
func start(dir string, sync bool) (*chain, error) {
	c := &chain{}
	var clients, copies []*os.File
	var copiesAt []string
	for range members {
		f, at, err := listen()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		clients, c.addresses = append(clients, f), append(c.addresses, at)
	}
	for range members - 1 {
		f, at, err := listen()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		copies, copiesAt = append(copies, f), append(copiesAt, at)
	}
	for i := range members {
		args := []string{memberCommand, "-file", filepath.Join(dir, strconv.Itoa(i)), fmt.Sprintf("-sync=%t", sync)}
		files := []*os.File{clients[i]}
		if i == 0 {
			args = append(args, "-copies", strings.Join(copiesAt, ","))
		} else {
			args, files = append(args, "-first", c.addresses[0]), append(files, copies[i-1])
		}
		if err := c.Start(args, []string{paced}, files...); err != nil {
			c.Stop()
			return nil, err
		}
	}
	return c, nil
}

// listen gives a listener's file, for a process to inherit: who connects before
// that has started waits for it.
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
	name := f.String("file", "", "that it writes to")
	sync := f.Bool("sync", true, "before it answers")
	copies := f.String("copies", "", "of the first: addresses of the others, for its puts")
	first := f.String("first", "", "of the others: the first one's address, for their clients")
	if err := f.Parse(args); err != nil {
		return err
	}
	file, err := bench.ZeroFile(*name, fileBytes)
	if err != nil {
		return err
	}
	defer file.Close()
	log := &log{file: file, sync: *sync}
	failed := make(chan error, 2)
	if *first == "" {
		go func() { failed <- serveAt(clientsFile, &node{log: log}, strings.Split(*copies, ",")) }()
	} else {
		go func() { failed <- serveAt(clientsFile, &node{first: *first}, []string{*first}) }()
		go func() { failed <- serveAt(copiesFile, &node{log: log}, nil) }()
	}
	go func() {
		child.Orphaned()
		failed <- nil
	}()
	return <-failed
}

// serveAt runs a node with an inherited listener; it passes its puts on to the
// addresses.
func serveAt(fd uintptr, n *node, next []string) error {
	l, err := net.FileListener(os.NewFile(fd, ""))
	if err != nil {
		return err
	}
	for _, address := range next {
		c, err := dial(address)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		n.next = append(n.next, c)
	}
	return n.serve(l)
}
