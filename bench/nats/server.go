package main

import (
	"errors"
	"flag"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/lockstepmq/lockstep/bench/child"
)

// serverCommand is the first argument of a process that is a server.
const serverCommand = "server"

// serve is one server.
func serve(args []string) error {
	f := flag.NewFlagSet(serverCommand, flag.ContinueOnError)
	name := f.String("name", "", "of the server")
	dir := f.String("dir", "", "of its streams, and its log")
	port := f.Int("port", 0, "of clients")
	clusterPort := f.Int("cluster-port", 0, "of the other servers")
	routes := f.String("routes", "", "URLs of the others")
	syncAlways := f.Bool("sync-always", false, "sync every write")
	if err := f.Parse(args); err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{
		ServerName: *name,
		Host:       loopback,
		Port:       *port,
		Cluster:    server.ClusterOpts{Name: "bench", Host: loopback, Port: *clusterPort},
		Routes:     server.RoutesFromStr(*routes),
		JetStream:  true,
		StoreDir:   *dir,
		SyncAlways: *syncAlways,
		LogFile:    filepath.Join(*dir, "server.log"),
		NoSigs:     true,
	})
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		return errors.New("the server does not get ready")
	}
	child.Orphaned()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}
