// Package host builds the simulated world as a program of its own, whose run depends on its seed alone, and runs seeds.
//
// The program is built with the runtime's simulated clock (build tag faketime: time passes only while every goroutine waits, and then
// at once) and runs on one processor. An overlay replaces the rest of what the runtime takes from the machine: its random numbers, the
// order of ready cases of a select, crypto/rand, and the preemption of goroutines that run for long. The order of a map of pointers depends
// on addresses. So the heap begins at a fixed address, and what the runtime allocates by the random numbers of a thread is left out: caches
// of type switches and samples of a profile. The overlay is made from the sources of the Go in use; a source that is
// not as expected is an error.
package host

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// change replaces a text of a file of the standard library, which has to be there exactly once.
type change struct{ file, old, new string }

var changes = []change{
	{"runtime/rand.go", "	if len(startupRand) >= 16 &&", "	startupRand = nil\n	seed[0] = 1\n	if true {\n	} else if len(startupRand) >= 16 &&"},
	{"runtime/rand.go", "	mp := getg().m\n	c := &mp.chacha8\n", "	mp := getg().m\n	c := &simulated\n	if !simulates {\n		c = &mp.chacha8\n	}\n"},
	{"runtime/rand.go", "	mp.cheaprand = rand()", "	mp.cheaprand = bootstrapRand()"},
	{"runtime/rand.go", "func mrandinit(mp *m) {", "var (\n	simulated chacha8rand.State\n	simulates bool\n)\n\nfunc mrandinit(mp *m) {\n	if !simulates {\n		simulated.Init64([4]uint64{1, 2, 3, 4})\n		simulates = true\n	}"},
	{"runtime/select.go", "j := cheaprandn(uint32(norder + 1))", "j := randn(uint32(norder + 1))"},
	{"runtime/time.go", "t.rand = cheaprand()", "t.rand = uint32(rand())"},
	{"runtime/iface.go", "	if cheaprand()&1023 != 0 {\n		// Only bother updating the cache ~1 in 1000 times.\n		return tab", "	if true {\n		return tab"},
	{"runtime/iface.go", "	if cheaprand()&1023 != 0 {\n		// Only bother updating the cache ~1 in 1000 times.\n		// This", "	if true {\n		// This"},
	{"runtime/proc.go", "if retake(now) != 0 {", "if faketime == 0 && retake(now) != 0 {"},
	{"crypto/internal/sysrand/rand_getrandom.go", "func read(b []byte) error {", `var state uint64 = 88172645463325252

func read(b []byte) error {
	for i := range b {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		b[i] = byte(state)
	}
	return nil
}

func readKernel(b []byte) error {`},
}

// Build makes the program in a folder.
func Build(folder string) (program string, err error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	texts := map[string]string{}
	for _, c := range changes {
		file := filepath.Join(strings.TrimSpace(string(root)), "src", c.file)
		if texts[file] == "" {
			text, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			texts[file] = string(text)
		}
		if strings.Count(texts[file], c.old) != 1 {
			return "", fmt.Errorf("%s of this Go is not as expected: %q is not there once", c.file, c.old)
		}
		texts[file] = strings.Replace(texts[file], c.old, c.new, 1)
	}
	for file, text := range texts {
		own := filepath.Join(folder, strings.ReplaceAll(regexp.MustCompile(`.*/src/`).ReplaceAllString(file, ""), "/", "_"))
		if err := os.WriteFile(own, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[file] = own
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		return "", err
	}
	program = filepath.Join(folder, "guest")
	build := exec.Command("go", "build", "-overlay", file, "-tags", "faketime", "-o", program, "github.com/lockstepmq/lockstep/internal/test/verify/world/cmd/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOEXPERIMENT=norandomizedheapbase64", "GOFLAGS=-trimpath")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the world: %w\n%s", err, text)
	}
	return program, nil
}
