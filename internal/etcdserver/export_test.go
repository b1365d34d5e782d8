package etcdserver

import "time"

// Crash ends the member without a word to the others.
func (s *Server) Crash() { s.etcd.Server.HardStop() }

// SmallQuota lets the database have so many bytes, and its size be looked at so often.
func SmallQuota(o *Options, bytes int64, every time.Duration) { o.quota, o.roomEvery = bytes, every }
