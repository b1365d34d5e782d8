// Command guest lives through the world of one seed and prints what happened as JSON. It is built for wasip1, where the host
// (package world/host) gives it its clock and its random numbers: nothing in it depends on the machine.
package main

import (
	crand "crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"

	"github.com/lockstepmq/lockstep/internal/test/verify/world"
)

func main() {
	threads(8)
	seed := flag.Uint64("seed", 1, "the seed")
	without := flag.String("without", "", "indexes of faults that are left out, separated by commas")
	traced := flag.String("trace", "", "a file for what is sent over the network")
	profile := flag.String("profile", "", "a file for the profile of the processor")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			panic(err)
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			panic(err)
		}
		defer pprof.StopCPUProfile()
	}
	crand.Reader = chacha{rand.NewChaCha8([32]byte{1})}
	leaveOut := map[int]bool{}
	for _, s := range strings.FieldsFunc(*without, func(r rune) bool { return r == ',' }) {
		i, err := strconv.Atoi(s)
		if err != nil {
			panic(err)
		}
		leaveOut[i] = true
	}
	var trace func(format string, args ...any)
	var lines strings.Builder
	if *traced != "" {
		trace = func(format string, args ...any) { fmt.Fprintf(&lines, format+"\n", args...) }
	}
	r := world.Run(*seed, leaveOut, trace)
	if *traced != "" {
		if err := os.WriteFile(*traced, []byte(lines.String()), 0o600); err != nil {
			panic(err)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		panic(err)
	}
}

// chacha is a random source that no machine influences.
type chacha struct{ *rand.ChaCha8 }

// Read implements io.Reader.
func (c chacha) Read(b []byte) (int, error) { return c.ChaCha8.Read(b) }

// threads makes the runtime create its threads now: later it would at moments that depend on the machine, and the addresses of what
// the program allocates after that, and so the order of maps of pointers, would differ.
func threads(n int) {
	var all, ready sync.WaitGroup
	begin := make(chan struct{})
	ready.Add(n)
	for range n {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-begin
		})
	}
	ready.Wait()
	close(begin)
	all.Wait()
}
