// Package world simulates whole brokers: the daemon's own code from the front ends down to the files, three or five brokers in one
// process, in virtual time, with a network, disks and metadata that a seed disturbs, and clients that a seed drives.
package world
