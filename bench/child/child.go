// Package child starts this executable as a server in its own process. The process ends with
// its standard input, so also when its parent dies.
package child

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// stopTimeout bounds the end of a child.
const stopTimeout = 10 * time.Second

// Processes are the children of one owner.
type Processes struct {
	commands []*exec.Cmd
	stdins   []io.Closer
}

// Start starts a child whose first argument selects its server; the files are open in it from
// number 3 on.
func (p *Processes) Start(args, env []string, files ...*os.File) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(executable, args...)
	cmd.Stderr, cmd.Env, cmd.ExtraFiles = os.Stderr, append(os.Environ(), env...), files
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.commands, p.stdins = append(p.commands, cmd), append(p.stdins, stdin)
	return nil
}

// PIDs lists the processes.
func (p *Processes) PIDs() (pids []int) {
	for _, cmd := range p.commands {
		pids = append(pids, cmd.Process.Pid)
	}
	return pids
}

// Stop ends the children and waits for their end.
func (p *Processes) Stop() {
	for i, cmd := range p.commands {
		_ = p.stdins[i].Close()
		kill := time.AfterFunc(stopTimeout, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
	}
}

// Serve returns at once unless this process is a child with that first argument: then it runs
// serve with the other arguments, and exits. An executable that can be a child calls it first,
// a test in its TestMain.
func Serve(command string, serve func(args []string) error) {
	if len(os.Args) < 2 || os.Args[1] != command {
		return
	}
	if err := serve(os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", command, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Orphaned waits until the parent closes the child's standard input, or dies.
func Orphaned() { _, _ = io.Copy(io.Discard, os.Stdin) }
