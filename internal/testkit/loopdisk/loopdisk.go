//go:build linux

// Package loopdisk gives tests a small disk that fails under a running process: a file with
// an ext4 file system, mounted through a loop device. It needs root. Only tests import it.
//
// It does not tear, flip or delay writes: vfs.Memory and vfs.Faulty do, within one process.
//
// # Invariants
//
//  1. After Break every write and every sync of the disk fails with EIO, and data that was
//     not synced is lost, as when a disk controller dies.
//  2. After Repair the directory holds the data that was synced before Break.
package loopdisk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// Disk is a file system in a file, mounted on a directory.
type Disk struct {
	file, dir string
}

const (
	// shutdown is EXT4_IOC_SHUTDOWN of linux/fs/ext4: _IOR('X', 125, __u32).
	shutdown = 0x8004587d
	// noLogFlush drops data that is not on the disk yet.
	noLogFlush = 2
)

// Mount makes a disk of a size in bytes in file and mounts it on dir. It replaces file and
// creates dir.
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

// Break makes the disk fail until Repair.
func (d *Disk) Break() error {
	f, err := os.Open(d.dir)
	if err != nil {
		return fmt.Errorf("loopdisk: %w", err)
	}
	err = unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noLogFlush)
	return errors.Join(err, f.Close())
}

// Repair mounts the disk again. It fails while a process has a file of the disk open.
func (d *Disk) Repair() error { return errors.Join(d.Close(), d.mount()) }

// Close unmounts the disk and keeps its file.
func (d *Disk) Close() error { return run("umount", d.dir) }

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("loopdisk: %s: %w: %s", name, err, out)
	}
	return nil
}
