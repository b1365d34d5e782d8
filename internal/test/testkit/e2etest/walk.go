package e2etest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

const (
	// walkEnv names a file for the table of the walk: a line for each failure.
	walkEnv = "LOCKSTEP_WALK"
	// shotsEnv names a folder for pictures of the page before, during and after each failure.
	shotsEnv = "LOCKSTEP_SHOTS"
)

// Walk notes what is said about the failures of one cluster.
type Walk struct {
	*Scrapes
	Camera *Camera // nil: no pictures
}

// NewWalk is a walk through the failures of a cluster.
func NewWalk(c *Cluster) *Walk { return &Walk{NewScrapes(c), newCamera(c.T)} }

// Failure is one failure, and what was said about it.
type Failure struct {
	W             *Walk
	Name          string // of the pictures
	Row           string // the action, in a sentence
	Looked        devcluster.Broker
	Caused        time.Time
	Page, Cli, is string
}

// Fail causes a failure. The page and nsqctl are asked at the broker named at.
func (w *Walk) Fail(name, row, at string, cause func()) *Failure {
	w.C.T.Helper()
	b, err := w.C.Broker(at)
	require.NoError(w.C.T, err)
	f := &Failure{W: w, Name: name, Row: row, Looked: *b, Page: "–", Cli: "–", is: "–"}
	f.picture("1-before")
	f.Caused = time.Now()
	cause()
	return f
}

// Shown waits until the page says a text, of its overview or of an event, and scrapes while it waits.
func (f *Failure) Shown(text string) {
	f.W.C.T.Helper()
	f.Until(text, func(said string) bool { return strings.Contains(said, text) })
	f.Page = fmt.Sprintf("%.1f s: %s", time.Since(f.Caused).Seconds(), text)
	f.picture("2-during")
}

// Gone waits until the page does not say a text of its overview any more.
func (f *Failure) Gone(text string) {
	f.W.C.T.Helper()
	f.Until("no "+text, func(said string) bool {
		now, _, _ := strings.Cut(said, EventsMark)
		return now != "" && !strings.Contains(now, text)
	})
	f.picture("3-after")
}

// Until waits until what is said of the failure meets a condition.
func (f *Failure) Until(text string, condition func(said string) bool) {
	f.W.C.T.Helper()
	said := ""
	for end := time.Now().Add(WaitLimit); ; {
		if said = f.W.Said(f.Looked); condition(said) {
			return
		}
		if time.Now().After(end) {
			f.W.C.T.Fatalf("%s: the page does not say within %s: %s; it says:\n%s", f.Row, WaitLimit, text, said)
		}
		f.W.Scrape(1)
	}
}

// Asked runs `nsqctl cluster health` until it ends with an exit code and has a text in its output. Beside
// the alarm that is looked for there may be others for a moment, of an election that is still to come.
func (f *Failure) Asked(code int, text string) {
	f.W.C.T.Helper()
	got, said := 0, ""
	for end := time.Now().Add(WaitLimit); ; Pause(PollEvery) {
		out, err := exec.Command(Built.Path("nsqctl"), "cluster", "health", "--nsqd-http-address", f.Looked.HTTP).Output()
		got, said = 0, string(out)
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			got = exit.ExitCode()
		}
		if got == code && strings.Contains(said, text) {
			break
		}
		if time.Now().After(end) {
			f.W.C.T.Fatalf("%s: nsqctl cluster health did not end with %d and say %q within %s; at last it ended with %d:\n%s", f.Row, code, text, WaitLimit, got, said)
		}
	}
	line, _, _ := strings.Cut(said, "\n")
	f.Cli = fmt.Sprintf("%d: %s", code, line)
}

// Fires notes that the alerts fire after the scrapes so far.
func (f *Failure) Fires(alerts ...string) {
	f.W.Expect(alerts...)
	f.is = strings.Join(alerts, ", ")
}

// Noted adds the failure to the table.
func (f *Failure) Noted() {
	f.W.C.T.Helper()
	line := fmt.Sprintf("| %s | %s | %s | %s |\n", f.Row, f.Page, f.Cli, cmp.Or(f.is, "–"))
	f.W.C.T.Log("walk: " + line)
	if file := os.Getenv(walkEnv); file != "" {
		out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		require.NoError(f.W.C.T, err)
		_, err = out.WriteString(line)
		require.NoError(f.W.C.T, errors.Join(err, out.Close()))
	}
}

// EventsMark divides the overview from the events in the words of said.
const EventsMark = "\n-- events --\n"

// Said is the text of the overview and of the events of the last 24 hours, as a broker answers them.
func (w *Walk) Said(b devcluster.Broker) string {
	var o struct {
		Summary, Cause string
		Alarms         []struct {
			Code, Text, Do string
			Where          []string
		}
		Behind []struct{ Topic, Channel, Why string }
	}
	var e struct {
		Events []struct{ Kind, Text, State string }
	}
	if w.C.Get(b, "/v1/console/overview", &o) != nil || w.C.Get(b, "/v1/console/events?limit=200", &e) != nil {
		return ""
	}
	text := &strings.Builder{}
	fmt.Fprintln(text, o.Summary, "\n", o.Cause)
	for _, a := range o.Alarms {
		fmt.Fprintln(text, a.Code+":", a.Text, a.Where)
	}
	for _, x := range o.Behind {
		fmt.Fprintf(text, "%s/%s: %s\n", x.Topic, x.Channel, x.Why)
	}
	text.WriteString(EventsMark)
	for _, x := range e.Events {
		fmt.Fprintln(text, x.Kind+":", x.Text)
	}
	return text.String()
}

// Camera takes pictures of pages, in a browser that stays open.
type Camera struct {
	t       *testing.T
	folder  string
	orders  *json.Encoder
	answers *bufio.Scanner
}

// newCamera starts the browser; nil without a folder for the pictures.
func newCamera(t *testing.T) *Camera {
	t.Helper()
	folder := os.Getenv(shotsEnv)
	if folder == "" {
		return nil
	}
	chromium, err := exec.LookPath("chromium")
	require.NoError(t, err)
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "shots.mjs"} {
		text, err := os.ReadFile(filepath.Join(Root, "internal/test/verify/console/walk", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	install := exec.Command("npm", "ci", "--prefer-offline")
	install.Dir = dir
	if text, err := install.CombinedOutput(); err != nil {
		env.Missing(t, "the packages of npm: "+string(text), err)
	}
	cmd := exec.Command("node", "shots.mjs", chromium)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // it ends with its input
	})
	require.NoError(t, os.MkdirAll(folder, 0o755))
	return &Camera{t, folder, json.NewEncoder(in), bufio.NewScanner(out)}
}

// Take takes a picture of a page.
func (k *Camera) Take(url, name string, width, height int, dark bool) {
	if k == nil {
		return
	}
	k.t.Helper()
	require.NoError(k.t, k.orders.Encode(map[string]any{
		"url": url, "file": filepath.Join(k.folder, name+".png"), "width": width, "height": height, "dark": dark,
	}))
	require.True(k.t, k.answers.Scan(), "no picture")
	require.Equal(k.t, "done", k.answers.Text(), url)
}

func (f *Failure) picture(when string) {
	f.W.Camera.Take("http://"+f.Looked.HTTP+"/ui", f.Name+"-"+when, 1280, 900, false)
}
