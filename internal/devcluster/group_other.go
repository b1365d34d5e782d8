//go:build !linux

package devcluster

import "syscall"

// processGroup puts a broker into a group of its own: Ctrl-C reaches only us,
// and we stop the brokers in order. Only Linux can tie a broker to our life.
func processGroup(bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
