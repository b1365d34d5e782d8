package skew

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Env is the variable with the path of a process's clock file.
const Env = "LOCKSTEP_SKEW"

// size is that of a clock file: one number of nanoseconds.
const size = 8

// Clock is the wall clock of the processes that have its file. Any goroutine may use it.
type Clock struct{ offset *int64 }

// New makes a clock file. The clock is right until Set.
func New(path string) (*Clock, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("skew: %w", err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return nil, fmt.Errorf("skew: %w", err)
	}
	shared, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("skew: map %s: %w", path, err)
	}
	return &Clock{(*int64)(unsafe.Pointer(&shared[0]))}, nil // the mapping stays until the process ends
}

// Set makes the clock differ from the machine's by so much.
func (c *Clock) Set(by time.Duration) { atomic.StoreInt64(c.offset, by.Nanoseconds()) }

// addition is the file that the overlay adds to package time.
const addition = `package time

import (
	"syscall"
	"unsafe"
)

var lockstepSkew = lockstepOpenSkew()

func lockstepOpenSkew() *int64 {
	path, ok := syscall.Getenv("` + Env + `")
	if !ok {
		return nil
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("` + Env + `: " + err.Error())
	}
	shared, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("` + Env + `: " + err.Error())
	}
	_ = syscall.Close(fd)
	return (*int64)(unsafe.Pointer(&shared[0]))
}

func lockstepSkewed(sec int64, nsec int32) (int64, int32) {
	if lockstepSkew == nil {
		return sec, nsec
	}
	ns := int64(nsec) + *lockstepSkew
	sec += ns / 1e9
	if ns %= 1e9; ns < 0 {
		ns += 1e9
		sec--
	}
	return sec, int32(ns)
}
`

// The reading of the clocks in time.Now, and the same with the addition.
const (
	reading = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	changed = reading + "\tsec, nsec = lockstepSkewed(sec, nsec)\n"
)

// overlay is the file that `go build -overlay` reads.
type overlay struct{ Replace map[string]string }

// Overlay writes an overlay into a directory and returns its file. The overlay includes the
// replacements of another one, if that is not "".
func Overlay(dir, other string) (string, error) {
	o := overlay{map[string]string{}}
	if other != "" {
		text, err := os.ReadFile(other)
		if err == nil {
			err = json.Unmarshal(text, &o)
		}
		if err != nil {
			return "", fmt.Errorf("skew: overlay %s: %w", other, err)
		}
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("skew: go env GOROOT: %w", err)
	}
	home := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(home, "time.go"))
	if err != nil {
		return "", fmt.Errorf("skew: %w", err)
	}
	if strings.Count(string(source), reading) != 1 {
		return "", fmt.Errorf("skew: time.Now of %s is not the one that this package changes", home)
	}
	for name, text := range map[string]string{
		"time.go": strings.Replace(string(source), reading, changed, 1), "lockstep_skew.go": addition,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return "", fmt.Errorf("skew: %w", err)
		}
		o.Replace[filepath.Join(home, name)] = path
	}
	text, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("skew: %w", err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return "", fmt.Errorf("skew: %w", err)
	}
	return file, nil
}
