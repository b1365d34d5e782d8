// Package child starts this executable as a server in a process of its own, which
// ends with its standard input: with the process that started it, however that
// dies.
package child

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// patience is how long a child may take to end.
const patience = 10 * time.Second

// Processes are the children of one owner.
type Processes struct {
	commands []*exec.Cmd
	stdins   []io.Closer
}

// Start starts a child that serves as its first argument says; the files are
// open in it from number 3 on.
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

// Stop ends the children and waits until they are gone.
func (p *Processes) Stop() {
	for i, cmd := range p.commands {
		_ = p.stdins[i].Close()
		kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
	}
}

// Serve does nothing unless this process is a child with that first argument:
// then it serves with the arguments behind it, and exits. What can be such a
// child begins with it, tests in their TestMain.
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
