//go:build race

package main

// memoryFactor is how much more memory a process takes under the race detector.
const memoryFactor = 6
