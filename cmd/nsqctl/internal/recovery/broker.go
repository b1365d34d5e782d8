package recovery

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/lockstepmq/lockstep/internal/datapath"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/nodefile"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// Broker is the stopped broker.
type Broker struct {
	DataPath string
	Node     string // its node name
	Cluster  string // its cluster name
}

// nodeFile opens the broker's node file.
func (b Broker) nodeFile() (*nodefile.File, error) {
	return nodefile.Open(vfs.OS{}, filepath.ToSlash(b.DataPath), b.Cluster, ident.Node(b.Node))
}

// lock takes the lock of the data path until release is called. It fails while a broker runs
// there.
func (b Broker) lock() (release func(), err error) {
	lock, err := datapath.Lock(b.DataPath)
	switch {
	case errors.Is(err, datapath.ErrInUse):
		return nil, errors.New("the broker still runs on this data path: stop it")
	case err != nil:
		return nil, fmt.Errorf("lock the data path: %w", err)
	}
	return func() { _ = lock.Unlock() }, nil // the end of the process releases it too
}
