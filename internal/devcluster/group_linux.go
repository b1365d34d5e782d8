package devcluster

import "syscall"

// processGroup puts a broker into a group of its own: Ctrl-C reaches only us,
// and we stop the brokers in order. A tied broker dies with us, however we die.
func processGroup(tied bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if tied {
		attr.Pdeathsig = syscall.SIGKILL
	}
	return attr
}
