// Package recovercmd has the commands of nsqctl that continue after the loss of more disks than the cluster tolerates:
// they show what is left, ask for a confirmation of the loss, and then request or make the change.
//
// A topic is recovered by the brokers (coordinator/admin), the metadata and the data path of a stopped broker by
// cmd/nsqctl/internal/recovery. The package changes no file itself.
//
// # Invariants
//
//  1. Nothing changes without --confirm and the name of what is lost.
package recovercmd
