package devcluster

import "syscall"

// processGroup puts a broker into its own process group: Ctrl-C reaches only the parent, which
// stops the brokers in order. The kernel kills a tied broker when the parent dies, for
// whatever reason.
func processGroup(tied bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if tied {
		attr.Pdeathsig = syscall.SIGKILL
	}
	return attr
}
