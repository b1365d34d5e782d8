// Package disks damages, wipes, restores and copies data directories. The rules of its tests are those of package e2e.
package disks
