package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
)

// TestStrangersShareTheirLines: lines that a client can cause before its login have one limit together, whatever they say.
func TestStrangersShareTheirLines(t *testing.T) {
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	f := newLimitedFormat(lineFormat{})
	now := time.Unix(1, 0)
	f.now = func() time.Time { return now }
	log.SetFormatter(f)
	for n := range 1000 {
		log.WithField(api.LogStranger, true).Info(strings.Repeat("x", n%50), " is refused")
		if n%100 == 0 {
			log.Info("a client is there")
		}
	}
	require.Equal(t, maxLinesBeforeLogin, strings.Count(out.String(), "is refused"))
	require.Equal(t, 10, strings.Count(out.String(), "a client"))
	now = now.Add(time.Second)
	log.Info("later")
	require.Contains(t, out.String(), fmt.Sprintf(`lines=%d message=%q`, 1000-maxLinesBeforeLogin, linesBeforeLogin))
}

// TestNoLineHasAPassword: whatever part of the broker writes it.
func TestNoLineHasAPassword(t *testing.T) {
	for _, format := range []logrus.Formatter{lineFormat{}, newJSONFormat("n1")} {
		var out bytes.Buffer
		log := logrus.New()
		log.SetOutput(&out)
		log.SetLevel(logrus.DebugLevel)
		log.SetFormatter(newLimitedFormat(format))
		err := errors.New(`Get "http://me:hush@h:1/x": EOF`)
		log.WithError(err).WithField("etcd", "https://me:hush@e:2").Warnf("cannot ask %s", "me:hush@a:3")
		log.WithError(err).Debug("again")
		require.NotContains(t, out.String(), "hush")
		require.Contains(t, out.String(), "http://me:xxxxx@h:1/x")
	}
}

// TestRepeatedLines: a message has so many lines in a second, whatever numbers are in it; the rest
// is counted. Audit and debug lines are all there.
func TestRepeatedLines(t *testing.T) {
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	log.SetLevel(logrus.DebugLevel)
	f := newLimitedFormat(lineFormat{})
	now := time.Unix(1, 0)
	f.now = func() time.Time { return now }
	log.SetFormatter(f)
	lines := func() []string {
		defer out.Reset()
		return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	}
	for i := range 1000 {
		log.WithField("remote", i).Warnf("refused %d.%d", i, i%7)
	}
	log.Info("something else")
	got := lines()
	require.Len(t, got, maxLines+1)
	require.Contains(t, got[len(got)-1], "something else")
	now = now.Add(time.Second)
	log.Info("something else")
	got = lines()
	require.Len(t, got, 2)
	require.Contains(t, got[0], `lines=980 message="refused #.#"`)
	now = now.Add(time.Second)
	log.Info("something else")
	require.Len(t, lines(), 1, "told once")
	for i := range 2 * maxLines {
		log.WithField("audit", true).Info("{}")
		log.Debug("detail ", i)
	}
	require.Len(t, lines(), 4*maxLines)

	// More messages than are told apart.
	for i := range 2 * maxMessages {
		log.Info("kind " + strings.Repeat("x", i))
	}
	require.Len(t, lines(), maxMessages-1+maxLines, "one of this second was there before")
	now = now.Add(time.Second)
	log.Info("the end")
	require.Contains(t, fmt.Sprint(lines()), `lines=481 message=(others)`)
}
