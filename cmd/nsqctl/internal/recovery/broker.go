package recovery

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// Broker is the stopped broker.
type Broker struct {
	DataPath string
	Node     string // its node name
	Cluster  string // its cluster name
}

// open locks the data path until release is called, and reads the broker's node file. It fails while a broker
// runs there. The lock is first: a broker that is just stopping still writes its node file.
func (b Broker) open() (node *nodefile.File, release func(), err error) {
	lock, err := nodefile.Lock(b.DataPath)
	switch {
	case errors.Is(err, nodefile.ErrInUse):
		return nil, nil, errors.New("the broker still runs on this data path: stop it")
	case err != nil:
		return nil, nil, fmt.Errorf("lock the data path: %w", err)
	}
	release = func() { _ = lock.Unlock() } // the end of the process releases it too
	if node, err = nodefile.Open(vfs.OS{}, filepath.ToSlash(b.DataPath), b.Cluster, ident.Node(b.Node)); err != nil {
		release()
		return nil, nil, err
	}
	return node, release, nil
}
