package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

const (
	askEvery     = 100 * time.Millisecond // pause between rounds of queries to the other members
	promptAnswer = 500 * time.Millisecond // the time within which a running member answers
	lateMembers  = 10 * time.Second       // how long a member with a moved disk waits (lifecycle.DoubtMoved)
	joinTimeout  = 20 * time.Second       // timeout of one attempt to join; then the other members are queried again
)

// errRefused means that the member must not start; the text says what an operator has to repair.
var errRefused = errors.New("etcd: this member does not start")

// starter starts one member. The peer port answers with its report until the member stops.
type starter struct {
	o       Options
	run     string // random, of this process
	members lifecycle.Members
	doubt   lifecycle.Doubt
	hadLog  bool                   // when the process started
	server  atomic.Pointer[Server] // nil until etcd was started
	said    string                 // last reason to wait
}

// Open starts the member of a broker's data path as package lifecycle decides: it founds a cluster with the others,
// votes with its log, or joins as a new member. It queries the other members until one of these is possible or ctx
// ends; o.Waiting receives the reason of a wait. A member that joined is a learner until Promote.
func Open(ctx context.Context, o Options) (*Server, error) {
	o.setDefaults()
	if err := o.loadIdentity(); err != nil {
		return nil, err
	}
	s, err := newStarter(o)
	if err != nil {
		return nil, err
	}
	if o.identity != nil && o.Names != nil {
		o.Names.SetMembers(s.memberNames)
	}
	peers, err := o.listenPeers(s.report)
	if err != nil {
		return nil, err
	}
	server, err := s.open(ctx, peers)
	if err != nil {
		peers.close()
		return nil, err
	}
	return server, nil
}

func newStarter(o Options) (*starter, error) {
	if _, _, err := o.urls(); err != nil {
		return nil, err
	}
	if o.Node == nil {
		return nil, fmt.Errorf("%w: a node file is required", ErrOptions)
	}
	s := &starter{o: o, run: rand.Text(), hadLog: Exists(o.Dir)}
	var err error
	if s.members, err = o.members(); err != nil {
		return nil, err
	}
	record := o.Node.Record()
	if s.doubt, err = nodefile.CheckMarks(filepath.Dir(o.Dir), record, s.hadLog); err != nil {
		return nil, err
	}
	err = o.Node.Update(func(r *nodefile.Record) {
		r.Doubted = s.doubt == lifecycle.DoubtCopied
		if r.Disk == "" && !s.hadLog {
			r.Disk = nodefile.NewDisk()
		}
	})
	return s, err
}

// open decides repeatedly until the member may start.
func (s *starter) open(ctx context.Context, peers *front) (*Server, error) {
	logged := ""
	for began := time.Now(); ; {
		r := s.ask(ctx)
		if r.twin != "" {
			return nil, fmt.Errorf("%w: %s runs at %v already: this broker needs a --node-name of its own", ErrOptions, s.o.Name, r.twin)
		}
		d := lifecycle.Decide(s.self(), r.reports, time.Since(began) > lateMembers, rand.Text)
		if d.Why != "" && d.Why != logged && d.Action != lifecycle.Wait && d.Action != lifecycle.Refuse {
			logged = d.Why // a failed join is retried ten times a second
			s.o.Log.Warn(d.Why)
		}
		switch d.Action {
		case lifecycle.Refuse:
			return nil, fmt.Errorf("%w: %s", errRefused, d.Why)
		case lifecycle.Start:
			return s.start(ctx, peers, d.Foundation)
		case lifecycle.Found:
			if err := s.o.Node.Update(func(rec *nodefile.Record) { rec.Foundation = d.Foundation }); err != nil {
				return nil, err
			}
			continue
		case lifecycle.Join:
			err := s.join(ctx, r)
			if err == nil {
				return s.start(ctx, peers, nil)
			}
			if errors.Is(err, ErrOptions) || errors.Is(err, errRefused) || ctx.Err() != nil {
				return nil, err
			}
			d.Why = fmt.Sprintf("cannot join the running cluster yet: %v", err)
		case lifecycle.Wait:
		}
		s.say(d, r)
		if !concurrency.Sleep(ctx, askEvery) {
			return nil, fmt.Errorf("etcd: %s: %w", s.said, ctx.Err())
		}
	}
}

// self returns this member's state for the life cycle.
func (s *starter) self() lifecycle.Self {
	r := s.o.Node.Record()
	return lifecycle.Self{
		Name: s.o.Name, Members: s.members, Absent: s.o.Absent, State: r.State(), Foundation: r.Foundation,
		Started: r.Started, HasLog: Exists(s.o.Dir), Doubt: s.doubt, Seen: r.Seen,
	}
}

// say passes the reason for the wait to o.Waiting, or logs it when it changes.
func (s *starter) say(d lifecycle.Decision, r round) {
	var each []string
	for _, n := range d.For {
		if f := r.faults[n]; f != "" {
			each = append(each, fmt.Sprintf("%s at %s: %s", n, s.members[n], f))
		}
	}
	if r.self != "" {
		each = append(each, "this broker at its own address: "+r.self)
	}
	why := sentence(d.For, d.Why, append(each, r.otherClusters...))
	changed := why != s.said
	s.said = why
	switch {
	case s.o.Waiting != nil:
		s.o.Waiting(why)
	case changed:
		s.o.Log.Warn("metadata: " + why)
	}
}

// join makes this member a new one of the running cluster. It first moves the member's old files away.
func (s *starter) join(ctx context.Context, r round) error {
	if err := s.moveAside(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	c, err := dial(r.clientURLs, s.o.clientTLS())
	if err != nil {
		return err
	}
	defer c.Close()
	own, err := memberURL(s.members, s.o.Name)
	if err != nil {
		return err
	}
	if s.o.NameTaken != nil {
		if err := s.o.NameTaken(ctx, c); err != nil {
			return err
		}
	}
	j := rejoining{Options: s.o, client: c, peerURL: own.String()}
	cluster, id, err := j.newIdentity(ctx)
	if err != nil {
		return err
	}
	if err := s.o.Node.Update(func(rec *nodefile.Record) { rec.Foundation = r.foundation }); err != nil {
		return err
	}
	return makeMember(s.o.Dir, cluster, id)
}

// moveAside moves the member's directory away and gives the disk a new id.
func (s *starter) moveAside() error {
	if Exists(s.o.Dir) {
		aside := fmt.Sprintf("%s.restored-%d", s.o.Dir, time.Now().Unix())
		if err := os.Rename(s.o.Dir, aside); err != nil {
			return fmt.Errorf("etcd: move the old metadata directory away: %w", err)
		}
		s.o.Log.WithField("directory", aside).Warn("the old metadata directory was moved away")
	}
	return s.o.Node.Update(func(r *nodefile.Record) {
		r.Disk, r.Foundation, r.Started = nodefile.NewDisk(), nil, false
	})
}

// start starts etcd with the content of the disk; foundation is set only for a founder, whose disk is empty.
func (s *starter) start(ctx context.Context, peers *front, foundation *lifecycle.Foundation) (*Server, error) {
	o := s.o
	o.front, o.cluster = peers, s.o.ClusterToken
	if foundation != nil && !Exists(o.Dir) {
		o.InitialCluster, o.ClusterToken = foundation.Founders.String(), o.ClusterToken+"/"+foundation.ID
	}
	server, err := Start(ctx, o)
	if err != nil {
		return nil, err
	}
	s.server.Store(server)
	peers.started()
	if err := s.o.Node.Update(func(r *nodefile.Record) { r.Started = true }); err != nil {
		server.Stop()
		return nil, err
	}
	return server, nil
}

// members returns the configured members, including this one. Without a configured cluster they are the members in its
// directory, or only this one.
func (o Options) members() (lifecycle.Members, error) {
	if members := parseMembers(o.InitialCluster); len(members) > 0 {
		return members, nil
	}
	_, peer, err := o.urls()
	if err != nil {
		return nil, err
	}
	members := o.storedMembers()
	members[o.Name] = peer.advertise.String()
	return members, nil
}

// memberNames returns the names of the members that run or have run in this cluster.
func (s *starter) memberNames() (names []string) {
	server := s.server.Load()
	if server == nil {
		return nil
	}
	for _, m := range server.etcd.Server.Cluster().Members() {
		names = append(names, m.Name)
	}
	return names
}

// storedMembers returns the members in the database, while etcd does not run; none if the database cannot be read, which etcd
// reports itself.
func (o Options) storedMembers() lifecycle.Members {
	members := lifecycle.Members{}
	path := databasePath(o.Dir)
	if short, err := cutShort(path); err != nil || short {
		return members
	}
	g := &giveUp{log: o.Log}
	_ = g.guard(func() error {
		log := g.logger()
		be := backend.NewDefaultBackend(log, path, backend.WithMmapSize(quotaBytes))
		defer be.Close()
		stored, _ := schema.NewMembershipBackend(log, be).MustReadMembersFromBackend()
		for _, m := range stored {
			if len(m.PeerURLs) > 0 && m.Name != "" {
				members[m.Name] = m.PeerURLs[0]
			}
		}
		return nil
	})
	return members
}
