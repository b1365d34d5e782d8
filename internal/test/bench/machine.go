package bench

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/vfs"
)

// Machine holds figures of the machine, measured in the same run: figures of brokers on
// different machines, or on a busy one, are comparable only relative to them.
type Machine struct {
	PingPong1  time.Duration `json:"loopback_round_trip_1_connection_ns"`   // 100 bytes, median
	PingPong64 float64       `json:"loopback_round_trips_64_connections_s"` // in total
	Sync1      time.Duration `json:"fdatasync_alone_ns"`                    // 4 KiB in a file of zeroes, median
	Sync3      time.Duration `json:"fdatasync_three_at_once_ns"`            // each of three files, median
	Memcpy     float64       `json:"memcpy_bytes_s"`
	CRC32C     float64       `json:"crc32c_bytes_s"`
}

const (
	pingBytes = 100
	probeTime = 500 * time.Millisecond
	syncPage  = 4096
	syncFile  = 8 << 20
)

// Probe measures the machine. It creates its files in dir and removes them.
func Probe(dir string) (m Machine, err error) {
	one, _, err := pingPong(1)
	if err != nil {
		return m, err
	}
	_, rate, err := pingPong(64)
	if err != nil {
		return m, err
	}
	m.PingPong1, m.PingPong64 = one, rate
	if m.Sync1, err = syncs(dir, 1); err != nil {
		return m, err
	}
	if m.Sync3, err = syncs(dir, 3); err != nil {
		return m, err
	}
	src, dst := bytes.Repeat([]byte{1}, 64<<20), make([]byte, 64<<20) // written: the kernel maps untouched memory to a single page
	m.Memcpy = throughput(len(src), func() { copy(dst, src) })
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := uint32(0)
	m.CRC32C = throughput(len(src), func() { sum += crc32.Checksum(src[:1<<20], table) }) / 64
	return m, nil
}

func throughput(bytes int, f func()) float64 {
	f()
	start, n := time.Now(), 0
	for time.Since(start) < probeTime/2 {
		f()
		n++
	}
	return float64(n*bytes) / time.Since(start).Seconds()
}

// pingPong sends 100 bytes back and forth over loopback TCP connections.
func pingPong(connections int) (median time.Duration, rate float64, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, fmt.Errorf("bench: %w", err)
	}
	defer l.Close()
	go echo(l)
	var mu sync.Mutex
	var all []time.Duration
	var group sync.WaitGroup
	start := time.Now()
	for range connections {
		group.Go(func() {
			took, e := ping(l.Addr().String())
			mu.Lock()
			defer mu.Unlock()
			if all = append(all, took...); e != nil {
				err = e
			}
		})
	}
	group.Wait()
	if err != nil || len(all) == 0 {
		return 0, 0, fmt.Errorf("bench: loopback: %w", err)
	}
	slices.Sort(all)
	return all[len(all)/2], float64(len(all)) / time.Since(start).Seconds(), nil
}

// echo sends the bytes of every connection back. It ends with the listener, its connections
// with their clients.
func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var b [pingBytes]byte
			for {
				if _, err := io.ReadFull(c, b[:]); err != nil {
					return
				}
				if _, err := c.Write(b[:]); err != nil {
					return
				}
			}
		}()
	}
}

func ping(address string) (took []time.Duration, err error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var b [pingBytes]byte
	for end := time.Now().Add(probeTime); ; {
		at := time.Now()
		if at.After(end) {
			return took, nil
		}
		if _, err := c.Write(b[:]); err != nil {
			return took, err
		}
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return took, err
		}
		took = append(took, time.Since(at))
	}
}

// syncs writes and syncs pages of several files at the same time.
func syncs(dir string, files int) (time.Duration, error) {
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var group sync.WaitGroup
	for i := range files {
		group.Go(func() {
			took, err := syncOne(filepath.Join(dir, fmt.Sprintf("bench-sync-%d-%d", os.Getpid(), i)))
			mu.Lock()
			defer mu.Unlock()
			if all = append(all, took...); err != nil {
				failed = err
			}
		})
	}
	group.Wait()
	if failed != nil || len(all) == 0 {
		return 0, fmt.Errorf("bench: fdatasync: %w", failed)
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// ZeroFile creates a file of at least that many zeroes and syncs it: later writes within it do
// not change its size, so their sync has no metadata.
func ZeroFile(name string, bytes int) (*os.File, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	zeroes := make([]byte, 1<<20)
	for at := 0; err == nil && at < bytes; at += len(zeroes) {
		_, err = f.Write(zeroes)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	return f, nil
}

// syncOne uses a file like a broker's journal: filled with zeroes and synced before.
func syncOne(name string) (took []time.Duration, err error) {
	zeroes, err := ZeroFile(name, syncFile)
	if err != nil {
		return nil, err
	}
	defer os.Remove(name)
	if err := zeroes.Close(); err != nil {
		return nil, err
	}
	f, err := vfs.OS.Open(name) // its sync is that of a broker, on every system
	if err != nil {
		return nil, err
	}
	defer f.Close()
	page := make([]byte, syncPage)
	at := int64(0)
	for end := time.Now().Add(probeTime); time.Now().Before(end); at = (at + syncPage) % syncFile {
		start := time.Now()
		if _, err := f.WriteAt(page, at); err != nil {
			return took, err
		}
		if err := f.Sync(); err != nil {
			return took, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}
