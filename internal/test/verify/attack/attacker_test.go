package attack

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// attackerEnv makes the test binary an attacker: the variable holds its orders.
const attackerEnv = "LOCKSTEP_ATTACKER"

// orders are those of one flood.
type orders struct {
	Address string
	From    []string // source addresses
	TLS     bool     // the port speaks TLS: make handshakes
	Opening string   // what a connection says that speaks
	Rate    int      // connections a second
	Seconds float64
	Hold    int // most connections that are kept open
}

// spoils are the figures of a flood so far.
type spoils struct {
	Opened  int64 // connections
	Failed  int64 // that could not be opened
	Refused int64 // that the broker has closed
	Held    int64 // that are open now
}

// attacker is a flood that continues in a process of its own.
type attacker struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

// flood starts an attacker. It keeps its connections after its time, until stop.
func flood(t testing.TB, o orders) *attacker {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), attackerEnv+"="+string(text), "GOMAXPROCS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	a := &attacker{t: t, cmd: cmd, stdin: stdin, out: bufio.NewReader(stdout)}
	t.Cleanup(func() {
		if a.cmd != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return a
}

// wait returns the figures at the end of the attacker's time.
func (a *attacker) wait() (s spoils) {
	a.t.Helper()
	line, err := a.out.ReadBytes('\n')
	require.NoError(a.t, err, "the attacker ended")
	require.NoError(a.t, json.Unmarshal(line, &s))
	return s
}

// stop closes the attacker's connections.
func (a *attacker) stop() {
	a.t.Helper()
	_ = a.stdin.Close()
	require.NoError(a.t, a.cmd.Wait())
	a.cmd = nil
}

// attackerMain is the attacker's process.
func attackerMain() int {
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv(attackerEnv)), &o); err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		return 1
	}
	f := &flooder{orders: o, open: make(chan struct{}, o.Hold)}
	f.run()
	text, err := json.Marshal(spoils{f.opened.Load(), f.failed.Load(), f.refused.Load(), int64(len(f.open))})
	if err != nil {
		return 1
	}
	fmt.Printf("%s\n", text)
	_, _ = io.Copy(io.Discard, os.Stdin) // until stop
	return 0
}

// flooder opens connections. Those that are open hold a place in open.
type flooder struct {
	orders
	open                    chan struct{}
	opened, failed, refused atomic.Int64
}

const (
	dialers  = 64
	step     = 10 * time.Millisecond
	dialTime = time.Second
)

// run opens connections at the rate for the time. The connections stay open afterwards.
func (f *flooder) run() {
	wanted := make(chan int, f.Rate)
	var running sync.WaitGroup
	for range dialers {
		running.Go(func() {
			for number := range wanted {
				f.connect(number)
			}
		})
	}
	began, number := time.Now(), 0
	end := began.Add(time.Duration(f.Seconds * float64(time.Second)))
	for tick := time.NewTicker(step); time.Now().Before(end); <-tick.C {
		for due := int(time.Since(began).Seconds() * float64(f.Rate)); number < due; number++ {
			select {
			case wanted <- number:
			default: // the broker, or this process, does not keep up
			}
		}
	}
	close(wanted)
	running.Wait()
}

// connect opens one connection: silent, talking, in the middle of a handshake, or closed at
// once.
func (f *flooder) connect(number int) {
	d := net.Dialer{Timeout: dialTime}
	if len(f.From) > 0 {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(f.From[number%len(f.From)])}
	}
	conn, err := d.Dial("tcp", f.Address)
	if err != nil {
		f.failed.Add(1)
		return
	}
	f.opened.Add(1)
	kept := false
	select {
	case f.open <- struct{}{}:
		kept = true
	default:
	}
	if !kept || number%5 == 4 {
		_ = conn.Close()
		if kept {
			<-f.open
		}
		return
	}
	go func() { // ends with the connection
		defer func() { <-f.open }()
		f.talk(conn, number%5)
		_, _ = io.Copy(io.Discard, conn)
		f.refused.Add(1)
		_ = conn.Close()
	}()
}

// talk says something of every kind that begins a connection.
func (f *flooder) talk(conn net.Conn, kind int) {
	switch {
	case kind == 0: // silent
	case kind == 1:
		_, _ = io.WriteString(conn, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") // half a ClientHello
	case kind == 2 && f.TLS:
		_ = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}).Handshake()
	default:
		_, _ = io.WriteString(conn, f.Opening)
	}
}
