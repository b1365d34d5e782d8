package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/bench"
)

func drawn(t *testing.T, r *bench.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := draw(&b, r); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return b.String()
		} else if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
	}
}

// TestASweepIsDrawnAsCurves: on a logarithmic abscissa equal factors have equal distances, the
// fastest repeat reaches the top, and each subject has a name.
func TestASweepIsDrawnAsCurves(t *testing.T) {
	r := &bench.Report{Sweep: "connections"}
	for _, x := range []float64{1, 2, 4} {
		r.Rows = append(r.Rows, bench.Row{Subject: "a<b", X: x, Rate: x * 100, RateMin: x * 50, RateMax: x * 100, P50: time.Millisecond})
	}
	svg := drawn(t, r)
	for _, want := range []string{`points="80.0,342.5 455.0,255.0 830.0,80.0"`, "a&lt;b", ">connections<", ">400<", "median latency"} {
		if !strings.Contains(svg, want) {
			t.Errorf("%q is missing in %s", want, svg)
		}
	}
	r.Rows = r.Rows[:1] // a single value has no scale
	if svg = drawn(t, r); strings.Contains(svg, "NaN") {
		t.Error(svg)
	}
}

// TestWorkloadsAreDrawnAsBars: each row has a bar that is as high as its rate.
func TestWorkloadsAreDrawnAsBars(t *testing.T) {
	svg := drawn(t, &bench.Report{Rows: []bench.Row{{Workload: "pub-1", Rate: 50, RateMin: 40, RateMax: 100}, {Workload: "pub-64"}}})
	for _, want := range []string{`height="175.0"`, `height="0.0"`, ">pub-64<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("%q is missing in %s", want, svg)
		}
	}
	if err := draw(io.Discard, &bench.Report{}); !errors.Is(err, errNoRows) {
		t.Error(err)
	}
}
