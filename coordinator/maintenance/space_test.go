package maintenance

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

// askedDisk calls asked before it answers how much is free.
type askedDisk struct {
	*vfstest.Memory
	asked func() error
}

func (d *askedDisk) FreeBytes(dir string) (uint64, error) {
	if err := d.asked(); err != nil {
		return 0, err
	}
	return d.Memory.FreeBytes(dir)
}

// TestAFullDiskThatAnswersLate: this broker is below its reserve until a check finds room, however late the
// check is, and whether or not the disk answers.
func TestAFullDiskThatAnswersLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &askedDisk{Memory: vfstest.NewMemory(), asked: func() error { return nil }}
		log := logrus.New()
		log.SetOutput(io.Discard)
		st, err := store.Open(store.Options{FS: d, Dir: "data", Log: log})
		require.NoError(t, err)
		defer st.Close()
		s := newSpace(&Broker{
			Self: "n1", Store: st, Settings: Settings{MinFreeBytes: 1000}, Log: log,
			Engine: &engine.Engine{}, Others: func() []ident.Node { return nil },
		})
		d.SetFreeBytes(999)
		s.Begin()
		require.True(t, s.Low("n1"))
		time.Sleep(2 * spaceForgotten)
		d.asked = func() error {
			require.True(t, s.Low("n1"), "the look before was late")
			return nil
		}
		s.run(t.Context())
		d.asked = func() error { return errors.New("an I/O error") }
		for range 3 {
			time.Sleep(spaceBack)
			s.run(t.Context())
			require.True(t, s.Low("n1"), "how much is free is not known")
		}
		d.asked = func() error { return nil }
		d.SetFreeBytes(1000)
		s.run(t.Context())
		require.True(t, s.Low("n1"), "not at once")
		time.Sleep(spaceBack)
		s.run(t.Context())
		require.False(t, s.Low("n1"))
	})
}
