package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

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
	addresses []string // of their clients
	processes []*exec.Cmd
	stdins    []io.Closer // a member ends with its own
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
		if err := c.startOne(args, files); err != nil {
			c.stop()
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

func (c *chain) startOne(args []string, files []*os.File) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(executable, args...)
	cmd.Stderr, cmd.ExtraFiles, cmd.Env = os.Stderr, files, append(os.Environ(), paced)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.processes, c.stdins = append(c.processes, cmd), append(c.stdins, stdin)
	return nil
}

// pids lists the processes, with commas between.
func (c *chain) pids() string {
	var pids []string
	for _, cmd := range c.processes {
		pids = append(pids, strconv.Itoa(cmd.Process.Pid))
	}
	return strings.Join(pids, ",")
}

// stop ends the members and waits until they are gone.
func (c *chain) stop() {
	for i, cmd := range c.processes {
		_ = c.stdins[i].Close()
		_ = cmd.Wait()
	}
}

// member is one process, until its standard input ends: with the process that
// started it, however that dies.
func member(args []string) error {
	f := flag.NewFlagSet(memberCommand, flag.ContinueOnError)
	name := f.String("file", "", "that it writes to")
	sync := f.Bool("sync", true, "before it answers")
	copies := f.String("copies", "", "of the first: addresses of the others, for its puts")
	first := f.String("first", "", "of the others: the first one's address, for their clients' puts")
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
		go func() { failed <- serveAt(clientsFile, &node{log: log, deliver: true}, strings.Split(*copies, ",")) }()
	} else {
		go func() { failed <- serveAt(clientsFile, &node{}, []string{*first}) }()
		go func() { failed <- serveAt(copiesFile, &node{log: log}, nil) }()
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
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
