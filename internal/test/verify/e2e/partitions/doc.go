// Package partitions runs clusters with hundreds of partitions or thousands of topics. The rules of its tests are those of package e2e.
package partitions
