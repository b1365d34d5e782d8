// Package once publishes once through faults (internal/test/verify/chaos): by content, by ids and by numbers, through kills, stops,
// cuts, moves, restarts, full disks, a wrong clock and changes of the window, while retention runs and workers consume
// by receipts. Each message is stored once.
package once
