//go:build linux

// Package loopdisk gives tests a small disk that fails or hangs under a running process: a file
// with an ext4 file system, mounted through a loop device. It needs root. Only tests import it.
//
// A disk in a disk hangs in two ways. While the inner one hangs, a write to a file does not
// return. While the outer one hangs, writes of the inner one fill the page cache, and syncs do
// not return.
//
// It does not tear or flip writes: vfstest.Memory and vfstest.Faulty do, within one process.
//
// # Invariants
//
//  1. After Break every write and every sync of the disk fails with EIO, and data that was
//     not synced is lost, as when a disk controller dies.
//  2. After Repair the directory holds the data that was synced before Break.
//  3. A disk that hangs continues after the time that Hang was told, also if the test has ended.
//
// # Goroutines
//
// Hang starts one that ends when the disk continues.
package loopdisk

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// Disk is a file system in a file, mounted on a directory.
type Disk struct {
	file, dir, options string
}

const (
	// shutdown is EXT4_IOC_SHUTDOWN of linux/fs/ext4: _IOR('X', 125, __u32).
	shutdown = 0x8004587d
	// noLogFlush drops data that is not on the disk yet.
	noLogFlush = 2
)

// Mount makes a disk of a size in bytes in file and mounts it on dir, with further options of
// mount(8). It replaces file and creates dir.
func Mount(file, dir string, bytes int64, options ...string) (*Disk, error) {
	d := &Disk{file: file, dir: dir, options: strings.Join(append([]string{"loop"}, options...), ",")}
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

// mount mounts the disk on a shared mount of its directory on itself: its end is the end of its
// copies in other mount namespaces, too.
func (d *Disk) mount() error {
	if err := run("mount", "--bind", "--make-shared", d.dir, d.dir); err != nil {
		return err
	}
	if err := run("mount", "-o", d.options, d.file, d.dir); err != nil {
		return errors.Join(err, run("umount", d.dir))
	}
	return nil
}

// hang freezes a file system, says so, and thaws it after a time.
const hang = `fsfreeze -f "$1" && echo frozen && sleep "$2"; fsfreeze -u "$1"`

// Hang lets no write to the disk return until the time is over. The channel is closed then. A
// process of its own ends the hang, because a test that is killed would leave processes that
// nobody can end.
func (d *Disk) Hang(lasts time.Duration) (over <-chan struct{}, err error) {
	cmd := exec.Command("sh", "-c", hang, "sh", d.dir, fmt.Sprintf("%.3f", lasts.Seconds()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("loopdisk: hang: %w", err)
	}
	said, _ := bufio.NewReader(out).ReadString('\n')
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	if said == "" {
		<-ended
		return nil, fmt.Errorf("loopdisk: fsfreeze %s: %s", d.dir, cmd.ProcessState)
	}
	return ended, nil
}

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

// unmounted is how long Close waits for the end of the loop device.
var unmounted = wait.Limit

// Close unmounts the disk and keeps its file. It fails while a process has a file of the disk
// open, and when a private copy of the mount keeps the file system alive elsewhere: to mount
// the file once more would show that file system, with its failure.
func (d *Disk) Close() error {
	if err := run("umount", d.dir); err != nil { // the disk
		return err
	}
	if err := run("umount", d.dir); err != nil { // the directory on itself
		return err
	}
	held, again := time.NewTimer(unmounted), time.NewTicker(10*time.Millisecond)
	defer held.Stop()
	defer again.Stop()
	for {
		devices, err := exec.Command("losetup", "--noheadings", "--output", "NAME", "--associated", d.file).Output()
		if err != nil {
			return fmt.Errorf("loopdisk: losetup: %w", err)
		}
		if len(devices) == 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-held.C:
			return fmt.Errorf("loopdisk: %s is unmounted, but another mount namespace holds %s", d.dir, strings.TrimSpace(string(devices)))
		}
	}
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("loopdisk: %s: %w: %s", name, err, out)
	}
	return nil
}
