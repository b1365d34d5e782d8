// Command guest lives through the world of one seed and prints what happened as JSON. It is built by package
// world/host, with a clock and random numbers of its own: nothing in it depends on the machine.
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
	"unsafe"

	"github.com/lockstepmq/lockstep/internal/test/verify/world"
)

func main() {
	threads(8)
	settle()
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

// settled keeps what settle has allocated.
var settled []any

// settle uses up what is free in the first 64 MiB of the heap, in the spans there and among the stacks. Where the runtime puts its threads
// between the first objects depends on the machine; the addresses of what is allocated from here on do not.
func settle() {
	const end = 0xc000000000 + 64<<20
	for below := true; below; {
		below = bytes(8192) < end
	}
	for _, size := range []int{12 << 10, 6 << 10, 3 << 10, 0} { // stacks, the large ones first: growth gives smaller ones back
		for range 32 {
			ready := make(chan struct{})
			go func() { // for ever: its stack stays where it is
				grow(size)
				close(ready)
				select {}
			}()
			<-ready
		}
	}
	for n := 1; n <= 32<<10; n++ {
		n = cap(append([]byte(nil), make([]byte, n)...)) // a size class
		for bytes(n) < end {
		}
	}
	for n := 1; n <= 4<<10; n++ {
		n = cap(append([]*byte(nil), make([]*byte, n)...))
		for pointers(n) < end {
		}
	}
}

func bytes(n int) uintptr {
	b := make([]byte, n)
	settled = append(settled, b)
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

func pointers(n int) uintptr {
	b := make([]*byte, n)
	settled = append(settled, b)
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

// grow makes the stack of its goroutine larger than size.
//
//go:noinline
func grow(size int) int {
	var frame [512]byte
	if size > 0 {
		frame[size%len(frame)] = byte(grow(size - len(frame)))
	}
	return int(frame[size%7])
}
