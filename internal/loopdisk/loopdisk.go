//go:build linux

// Package loopdisk gives tests a small disk of their own that can be taken away
// from under a running process: a file with an ext4 on it, mounted through a
// loop device. It needs root and is for tests alone.
//
// It does not tear, flip or delay: vfs.Memory and vfs.Faulty do, within one
// process.
//
// # Invariants
//
//  1. After Break every write and every sync of the disk fails with EIO, and
//     what was not synced is lost, as with a controller that dies.
//  2. After Mend the directory holds what was synced before Break.
package loopdisk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// Disk is a mounted file.
type Disk struct {
	file, dir string
}

const (
	// shutdown is EXT4_IOC_SHUTDOWN of linux/fs/ext4: _IOR('X', 125, __u32).
	shutdown = 0x8004587d
	// noLogFlush loses what is not on the disk yet.
	noLogFlush = 2
)

// Mount makes a disk of some bytes in file, which it replaces, and mounts it on
// dir, which it makes.
func Mount(file, dir string, bytes int64) (*Disk, error) {
	d := &Disk{file: file, dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("loopdisk: %w", err)
	}
	f, err := os.Create(file)
	if err == nil {
		err = errors.Join(f.Truncate(bytes), f.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("loopdisk: %w", err)
	}
	if err := run("mkfs.ext4", "-q", file); err != nil {
		return nil, err
	}
	return d, d.mount()
}

func (d *Disk) mount() error { return run("mount", "-o", "loop", d.file, d.dir) }

// Break fails the disk for good, until Mend.
func (d *Disk) Break() error {
	f, err := os.Open(d.dir)
	if err != nil {
		return fmt.Errorf("loopdisk: %w", err)
	}
	err = unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noLogFlush)
	return errors.Join(err, f.Close())
}

// Mend mounts the disk again. Nobody may have a file of it open.
func (d *Disk) Mend() error { return errors.Join(d.Close(), d.mount()) }

// Close takes the disk away; the file stays.
func (d *Disk) Close() error { return run("umount", d.dir) }

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("loopdisk: %s: %w: %s", name, err, out)
	}
	return nil
}
