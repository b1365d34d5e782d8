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

// serve runs one server.
func serve(args []string) error {
	f := flag.NewFlagSet(serverCommand, flag.ContinueOnError)
	name := f.String("name", "", "name of the server")
	dir := f.String("dir", "", "directory of the server's streams and log")
	port := f.Int("port", 0, "port for clients")
	clusterPort := f.Int("cluster-port", 0, "port for the other servers")
	routes := f.String("routes", "", "URLs of the other servers")
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
		return errors.New("the server does not become ready")
	}
	child.Orphaned()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}
