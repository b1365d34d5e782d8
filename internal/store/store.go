package store

import (
	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

type Options struct {
	FS              vfs.FS
	Dir             string
	BootID          string
	SegmentBytes    int64
	JournalBytes    int64
	CheckpointBytes int64
	TailBytes       int
	NoSync          bool
	Log             logrus.FieldLogger
}
type Sink interface{ Synced(token uint64, err error) }
type Submission struct {
	Partition *Partition
	Writes    []queue.Write
}
type Store struct{}
type Partition struct{}

func Open(o Options) (*Store, error)                                               { panic("") }
func (s *Store) Partitions() []*Partition                                          { return nil }
func (s *Store) Partition(id ident.Partition) (*Partition, bool)                   { return nil, false }
func (s *Store) Create(topic string, id ident.Partition) (*Partition, error)       { return nil, nil }
func (s *Store) Trash(id ident.Partition) error                                    { return nil }
func (s *Store) Submit(subs []Submission, sink Sink, token uint64)                 {}
func (s *Store) Checkpoint() error                                                 { return nil }
func (s *Store) Close() error                                                      { return nil }
func (s *Store) Err() error                                                        { return nil }
func (s *Store) FreeBytes() (uint64, error)                                        { return 0, nil }
func (p *Partition) ID() ident.Partition                                           { return ident.Partition{} }
func (p *Partition) Topic() string                                                 { return "" }
func (p *Partition) StoreID() ident.StoreID                                        { return 0 }
func (p *Partition) Restored() queue.Restored                                      { return queue.Restored{} }
func (p *Partition) Confirms() []queue.Confirm                                     { return nil }
func (p *Partition) Index() *commitlog.Log                                         { return nil }
func (p *Partition) ReadAt(from ident.Offset, max int) ([]queue.Batch, error)      { return nil, nil }
func (p *Partition) ReadSequence(f ident.Sequence, max int) ([]queue.Batch, error) { return nil, nil }
func (p *Partition) DiskBytes() int64                                              { return 0 }
func (p *Partition) TrimHead(below ident.Position) error                           { return nil }
