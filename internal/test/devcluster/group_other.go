//go:build !linux

package devcluster

import "syscall"

// processGroup puts a broker into its own process group: Ctrl-C reaches only the parent, which
// stops the brokers in order. Only Linux can tie a broker to the life of its parent.
func processGroup(bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
