package recovery

import (
	"fmt"

	"github.com/lockstepmq/lockstep/internal/nodefile"
)

// Vouch marks a copied data path as the newest state of its broker.
func (b Broker) Vouch() error {
	node, err := b.nodeFile()
	if err != nil {
		return err
	}
	if node.Record().Boot == 0 {
		return fmt.Errorf("%s holds no node.json of a broker that has run", b.DataPath)
	}
	release, err := b.lock()
	if err != nil {
		return err
	}
	defer release()
	marks, err := nodefile.Mark(b.DataPath)
	if err != nil {
		return err
	}
	return node.Update(func(r *nodefile.Record) { r.Marks, r.Doubted = marks, false })
}
