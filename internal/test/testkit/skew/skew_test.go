package skew

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program prints the wall clock and a duration for each line that it reads.
const program = `package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	began := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(time.Now().UnixNano(), time.Since(began).Nanoseconds())
	}
}
`

// TestClockOfAProcess: the wall clock of a running process jumps, its durations do not.
func TestClockOfAProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program with another standard library; left out with -short")
	}
	dir := t.TempDir()
	source, built := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(source, []byte(program), 0o644))
	overlay, err := Overlay(dir, "")
	require.NoError(t, err)
	out, err := exec.Command("go", "build", "-overlay", overlay, "-o", built, source).CombinedOutput()
	require.NoError(t, err, string(out))
	clock, err := New(filepath.Join(dir, "clock"))
	require.NoError(t, err)

	process := exec.Command(built)
	process.Env = append(os.Environ(), Env+"="+filepath.Join(dir, "clock"))
	in, err := process.StdinPipe()
	require.NoError(t, err)
	answers, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	lines := make([]byte, 256)
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour, 1500 * time.Millisecond, -1500 * time.Millisecond} {
		clock.Set(skew)
		_, err := in.Write([]byte("?\n"))
		require.NoError(t, err)
		n, err := answers.Read(lines)
		require.NoError(t, err)
		numbers := strings.Fields(string(lines[:n]))
		wall, since := number(t, numbers[0]), number(t, numbers[1])
		require.InDelta(t, time.Now().Add(skew).UnixNano(), wall, 1e9)
		require.Less(t, since, int64(time.Minute))
		require.Positive(t, since)
	}
	require.NoError(t, in.Close())
	require.NoError(t, process.Wait())
}

func number(t *testing.T, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}
