package bench

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// clockTicks is USER_HZ, which Linux fixes at 100 for user space.
const clockTicks = 100

// Steal returns the processor time, over all processors since the boot, in which this machine
// was ready to run and its host ran others; 0 where the kernel does not report it.
func Steal() time.Duration {
	b, _ := os.ReadFile("/proc/stat")
	all, _, _ := strings.Cut(string(b), "\n") // cpu user nice system idle iowait irq softirq steal …
	f := strings.Fields(all)
	if len(f) < 9 || f[0] != "cpu" {
		return 0
	}
	ticks, _ := strconv.Atoi(f[8])
	return time.Duration(ticks) * time.Second / clockTicks
}

// stealShare returns stolen time as percent of the time of all processors.
func stealShare(stolen, in time.Duration) float64 {
	return 100 * stolen.Seconds() / (in.Seconds() * float64(runtime.NumCPU()))
}

// ResetPeakMemory resets the peaks to the current sizes, as far as the kernel and the
// permissions allow it.
func ResetPeakMemory(pids []int) {
	for _, pid := range pids {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
	}
}

// PeakMemory returns the sum of the peak resident sizes in bytes.
func PeakMemory(pids []int) int64 { return memory(pids, "VmHWM:") }

// Memory returns the sum of the current resident sizes in bytes.
func Memory(pids []int) int64 { return memory(pids, "VmRSS:") }

func memory(pids []int, field string) (total int64) {
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(b), "\n") {
			if rest, ok := strings.CutPrefix(line, field); ok {
				kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
				total += kb << 10
			}
		}
	}
	return total
}
