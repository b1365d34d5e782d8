package e2e

import (
	"bufio"
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

	"github.com/lockstepmq/lockstep/internal/devcluster"
	"github.com/lockstepmq/lockstep/internal/testkit/env"
)

// The walk: each row of "When something is wrong" (docs/OPERATIONS.md) and each alert, with its
// failure really caused. The tests of the rows and alerts note here what the page, nsqctl and the
// alert say, and how soon.

const (
	// walkEnv names a file for the table of the walk: a line for each failure.
	walkEnv = "LOCKSTEP_WALK"
	// shotsEnv names a folder for pictures of the page before, during and after each failure.
	shotsEnv = "LOCKSTEP_SHOTS"
)

// walk notes what is said about the failures of one cluster.
type walk struct {
	*scrapes
	camera *camera // nil: no pictures
}

func newWalk(c *cluster) *walk { return &walk{newScrapes(c), newCamera(c.t)} }

// failure is one failure, and what was said about it.
type failure struct {
	w             *walk
	name          string // of the pictures
	row           string // what was done, in a sentence
	looked        devcluster.Broker
	caused        time.Time
	page, cli, is string
}

// fail causes a failure. The page and nsqctl are asked at the broker named at.
func (w *walk) fail(name, row, at string, cause func()) *failure {
	w.c.t.Helper()
	b, err := w.c.Broker(at)
	require.NoError(w.c.t, err)
	f := &failure{w: w, name: name, row: row, looked: *b, page: "–", cli: "–", is: "–"}
	f.picture("1-before")
	f.caused = time.Now()
	cause()
	return f
}

// shown waits until the page says a text, of its overview or of an event, and scrapes meanwhile.
func (f *failure) shown(text string) {
	f.w.c.t.Helper()
	f.until(text, func(said string) bool { return strings.Contains(said, text) })
	f.page = fmt.Sprintf("%.1f s: %s", time.Since(f.caused).Seconds(), text)
	f.picture("2-during")
}

// gone waits until the page does not say a text of its overview any more.
func (f *failure) gone(text string) {
	f.w.c.t.Helper()
	f.until("no "+text, func(said string) bool {
		now, _, _ := strings.Cut(said, eventsMark)
		return now != "" && !strings.Contains(now, text)
	})
	f.picture("3-after")
}

func (f *failure) until(text string, condition func(said string) bool) {
	f.w.c.t.Helper()
	said := ""
	for end := time.Now().Add(waitLimit); ; {
		if said = f.w.said(f.looked); condition(said) {
			return
		}
		if time.Now().After(end) {
			f.w.c.t.Fatalf("%s: the page does not say within %s: %s; it says:\n%s", f.row, waitLimit, text, said)
		}
		f.w.scrape(1)
	}
}

// asked runs `nsqctl cluster health` and requires its exit code, and a text in its output.
func (f *failure) asked(code int, text string) {
	f.w.c.t.Helper()
	out, err := exec.Command(built.path("nsqctl"), "cluster", "health", "--nsqd-http-address", f.looked.HTTP).Output()
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	}
	require.Equal(f.w.c.t, code, got, "%s: %s", f.row, out)
	require.Contains(f.w.c.t, string(out), text, f.row)
	line, _, _ := strings.Cut(string(out), "\n")
	f.cli = fmt.Sprintf("%d: %s", code, line)
}

// fires notes that the alerts fire after the scrapes so far.
func (f *failure) fires(alerts ...string) {
	f.w.expect(alerts...)
	f.is = strings.Join(alerts, ", ")
}

// noted adds the failure to the table.
func (f *failure) noted() {
	f.w.c.t.Helper()
	line := fmt.Sprintf("| %s | %s | %s | %s |\n", f.row, f.page, f.cli, f.is)
	f.w.c.t.Log("walk: " + line)
	if file := os.Getenv(walkEnv); file != "" {
		out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		require.NoError(f.w.c.t, err)
		_, err = out.WriteString(line)
		require.NoError(f.w.c.t, errors.Join(err, out.Close()))
	}
}

// eventsMark divides the overview from the events in the words of said.
const eventsMark = "\n-- events --\n"

// said is the text of the overview and of the events of the last 24 hours, as a broker answers them.
func (w *walk) said(b devcluster.Broker) string {
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
	if w.c.get(b, "/v1/console/overview", &o) != nil || w.c.get(b, "/v1/console/events?limit=200", &e) != nil {
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
	text.WriteString(eventsMark)
	for _, x := range e.Events {
		fmt.Fprintln(text, x.Kind+":", x.Text)
	}
	return text.String()
}

// camera takes pictures of pages, in a browser that stays open.
type camera struct {
	t       *testing.T
	folder  string
	orders  *json.Encoder
	answers *bufio.Scanner
}

// newCamera starts the browser; nil without a folder for the pictures.
func newCamera(t *testing.T) *camera {
	t.Helper()
	folder := os.Getenv(shotsEnv)
	if folder == "" {
		return nil
	}
	chromium, err := exec.LookPath("chromium")
	require.NoError(t, err)
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "shots.mjs"} {
		text, err := os.ReadFile(filepath.Join("../console/walk", name))
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
	return &camera{t, folder, json.NewEncoder(in), bufio.NewScanner(out)}
}

// take takes a picture of a page.
func (k *camera) take(url, name string, width, height int, dark bool) {
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

func (f *failure) picture(when string) {
	f.w.camera.take("http://"+f.looked.HTTP+"/ui", f.name+"-"+when, 1280, 900, false)
}
