package recovery

import (
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
)

// Vouch marks a copied data path as the newest state of its broker.
func (b Broker) Vouch() error {
	node, release, err := b.open()
	if err != nil {
		return err
	}
	defer release()
	if node.Record().Boot == 0 {
		return fmt.Errorf("%s holds no node.json of a broker that has run", b.DataPath)
	}
	marks, err := nodefile.Mark(b.DataPath)
	if err != nil {
		return err
	}
	return node.Update(func(r *nodefile.Record) { r.Marks, r.Doubted = marks, false })
}
