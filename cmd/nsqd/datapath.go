package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

type dataPath struct {
	dir     string
	locked  *flock.Flock
	node    *nodefile.File // distinguishes the data path from an older copy of it
	holding nodefile.Holding
}

// lock creates the directory, refuses one of a stock nsqd, and locks it.
func (d *dataPath) lock(dir string) (err error) {
	if d.dir = dir; dir == "" {
		d.dir = "."
	}
	if err := vfs.MakeDir(vfs.OS, filepath.ToSlash(d.dir)); err != nil {
		return fmt.Errorf("data path: %w", err)
	}
	if err := stockData(d.dir); err != nil {
		return err
	}
	if d.locked, err = nodefile.Lock(d.dir); err != nil {
		return fmt.Errorf("lock data path %s: %w", d.dir, err)
	}
	return nil
}

func (d *dataPath) unlock() {
	if d.locked != nil {
		_ = d.locked.Unlock()
	}
}

// identify reads the broker's record in the data path, and checks whether the data path is a copy.
func (d *dataPath) identify(cluster, node string, log logrus.FieldLogger) (err error) {
	d.node, err = nodefile.Open(vfs.OS, filepath.ToSlash(d.dir), cluster, ident.Node(node))
	if err != nil {
		return err
	}
	doubt, err := nodefile.CheckMarks(d.dir, d.node.Record(), etcd.Exists(filepath.Join(d.dir, "etcd")))
	if err != nil || doubt != lifecycle.DoubtCopied || d.node.Record().Doubted {
		return err
	}
	log.Warn("data path is a copy, fetching missing data from the other brokers")
	return d.node.Update(func(r *nodefile.Record) { r.Doubted = true })
}

// hold opens the folders, so that check notices their removal.
func (d *dataPath) hold(withEtcd bool) (err error) {
	names := []string{"journal", "topics"}
	if withEtcd {
		names = append(names, "etcd")
	}
	d.holding, err = nodefile.Hold(d.locked, names...)
	return err
}

// check logs and returns an error if the data path was removed.
func (d *dataPath) check(log logrus.FieldLogger) error {
	err := d.holding.Check()
	if err != nil {
		log.WithError(err).Error("data path removed, stopping so that no acknowledged message is lost")
	}
	return err
}

// dataPathFault returns why a directory cannot be the data path, as far as that shows without opening it. A missing one
// is created at the start.
func dataPathFault(dir string) error {
	dir = cmp.Or(dir, ".")
	st, err := os.Stat(dir)
	switch {
	case os.IsNotExist(err):
		return nil
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	}
	return stockData(dir)
}

// stockData refuses the data path of a stock nsqd.
func stockData(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "nsqd.dat")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("data path %s holds the queues of a stock nsqd (nsqd.dat): choose another --data-path; to bring the "+
		"messages over, start the broker there and run `nsqctl import-nsqd %s`", dir, dir)
}
