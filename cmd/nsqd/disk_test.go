package main

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// TestFullDisk runs a broker on a disk of 400 MiB that another file fills: puts are refused before the reserve is used,
// consumers drain, and puts are accepted again when there is space.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	const reserve = 64 << 20
	b := prepare(t)
	if err := syscall.Mount("tmpfs", b.dir, "tmpfs", 0, "size=400m"); err != nil {
		env.Missing(t, "a small file system", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(b.dir, syscall.MNT_DETACH)) })
	b.run("--min-free-disk-bytes=67108864")
	b.ready()
	c := b.dial()
	for range 20 {
		c.put("orders", "before")
	}
	ballast := filepath.Join(b.dir, "ballast")
	fill(t, ballast, free(t, b.dir)-reserve+(4<<20))
	stored := 20
	b.eventually("refuses puts", func() bool {
		status, text := b.post("/pub?topic=orders", "x")
		if status == 200 {
			stored++
			return false
		}
		require.Equal(t, 503, status)
		return strings.Contains(text, "disk")
	})
	c.command("x", "PUB orders")
	_, text := c.next()
	require.Contains(t, text, "E_PUB_FAILED PUB failed disk reserve reached, not stored")
	status, _ := b.get("/ping")
	require.Equal(t, 200, status, "it serves, though it takes nothing")
	require.Contains(t, b.logged(), "disk")

	consumer := b.dial()
	consumer.consume("orders", "ch", 1)
	for range stored {
		id, _, _ := consumer.message()
		consumer.send("FIN %s\n", id)
	}
	b.eventually("the finishes are kept", func() bool {
		_, s := b.get("/stats?format=json&include_clients=false")
		return strings.Contains(s, `"depth":0,"backend_depth":0,"in_flight_count":0`)
	})
	require.Greater(t, free(t, b.dir), int64(reserve/2), "the reserve is there still")

	require.NoError(t, os.Remove(ballast))
	b.eventually("takes puts again", func() bool {
		status, _ := b.post("/pub?topic=orders", "after")
		return status == 200
	})
	_, _, text = consumer.message()
	require.NotEmpty(t, text)
}

// smallDisk creates a directory and mounts a file system on it.
func smallDisk(t *testing.T, dir, size string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o700))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		env.Missing(t, "a small file system", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
}

// saysThatTheDiskIsFull checks that the log does not call files damaged, which an operator would delete.
func (b *broker) saysThatTheDiskIsFull() {
	b.t.Helper()
	require.Equal(b.t, 1, b.wait())
	require.Contains(b.t, b.logged(), "the disk is full; make room, then start again (nothing is damaged)")
	for _, misleading := range []string{"files are damaged", "move the directory away", "%!", "goroutine"} {
		require.NotContains(b.t, b.logged(), misleading)
	}
}

// TestMetadataOnAFullDisk: if the disk is full at the start of the embedded etcd, or later,
// the broker ends and logs the reason.
func TestMetadataOnAFullDisk(t *testing.T) {
	t.Parallel()
	t.Run("at the start", func(t *testing.T) {
		t.Parallel()
		b := prepare(t)
		b.env = []string{productFiles}
		smallDisk(t, filepath.Join(b.dir, "etcd"), "20m")
		b.run()
		b.saysThatTheDiskIsFull()
	})
	t.Run("while it runs", func(t *testing.T) {
		t.Parallel()
		b := prepare(t)
		b.env = []string{productFiles}
		dir := filepath.Join(b.dir, "etcd")
		smallDisk(t, dir, "150m")
		b.run()
		b.ready()
		fill(t, filepath.Join(dir, "ballast"), free(t, dir))
		b.eventually("has no room for the metadata", func() bool {
			select {
			case <-b.done:
				return true
			default:
			}
			// The broker may end before it answers.
			if resp, err := b.http.Post(b.url("/topic/create?topic=t"+rand.Text()), "", nil); err == nil {
				_ = resp.Body.Close()
			}
			return false
		})
		b.saysThatTheDiskIsFull()
		require.NoError(t, os.Remove(filepath.Join(dir, "ballast")))
		b.run()
		b.ready()
	})
}

func free(t *testing.T, dir string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	require.NoError(t, syscall.Statfs(dir, &s))
	return int64(s.Bavail) * s.Bsize
}

func fill(t *testing.T, name string, bytes int64) {
	t.Helper()
	f, err := os.Create(name)
	require.NoError(t, err)
	require.NoError(t, syscall.Fallocate(int(f.Fd()), 0, 0, bytes))
	require.NoError(t, f.Close())
}
