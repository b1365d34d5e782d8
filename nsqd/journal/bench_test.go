package journal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/vfs"
)

// BenchmarkGroup is one submission of 300 bytes at a time on a real disk: a group each.
func BenchmarkGroup(b *testing.B) {
	for name, noSync := range map[string]bool{"sync": false, "nosync": true} {
		b.Run(name, func(b *testing.B) {
			j, _, err := Open(Options{FS: vfs.OS, Dir: b.TempDir(), FileBytes: 16 << 20, NoSync: noSync}, Mark{}, func([]byte) error { return nil })
			require.NoError(b, err)
			answered := make(chan Mark, 1)
			require.NoError(b, j.Start(func(_ uint64, d Mark, err error) {
				if err != nil {
					panic(err)
				}
				answered <- d
			}))
			s := text(make([]byte, 300))
			for b.Loop() {
				j.Submit(s)
				j.Flush()
				if d := <-answered; d.Group%4096 == 0 {
					require.NoError(b, j.Release(d.Group))
				}
			}
			require.NoError(b, j.Close())
		})
	}
}
