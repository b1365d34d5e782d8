// Package placement makes the changes of replicas and leaders for the commands of nsqctl: it shows the plan of the
// cluster, asks on a terminal, requests the change, and waits until the cluster has carried it out.
//
// It computes no plan: the controller does (coordinator/admin/moves). It has no command, and moves no replica itself.
//
// # Invariants
//
//  1. With --dry-run no request changes anything.
//  2. On a terminal a plan with steps is confirmed before the request, unless --yes is given.
//  3. A wait ends when no step is open, at its limit, or when the change can never be done. The change continues
//     in the background after the limit.
package placement
