package journal

import "time"

// Busy is the time for which a group, or the acknowledgement record, has been on its way to the
// disk: waiting for a file, being written, or being synced. 0: none is. It grows while the disk
// hangs, with and without NoSync. It counts from the first call during the operation, so a watch
// calls it regularly. It takes no lock, so the watch never waits for the disk. Any goroutine, after
// Start.
func (j *Journal) Busy() time.Duration { return max(j.groups.Busy(), j.acked.watch.Busy()) }
