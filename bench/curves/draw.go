package main

import (
	"bufio"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/lockstepmq/lockstep/internal/test/bench"
)

// The drawing area within the picture; the legend stands above it.
const (
	width, height           = 900.0, 480.0
	left, right, top, below = 80.0, 70.0, 80.0, 50.0
	gridLines               = 5
)

var colours = []string{"#1f77b4", "#d95f02", "#2ca02c", "#9467bd"}

var errNoRows = errors.New("the report has no rows")

// draw writes the picture of a report.
func draw(out io.Writer, r *bench.Report) error {
	if len(r.Rows) == 0 {
		return errNoRows
	}
	w := bufio.NewWriter(out)
	fmt.Fprintf(w, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", width, height)
	if r.Sweep != "" {
		curves(w, r)
	} else {
		bars(w, r)
	}
	fmt.Fprintln(w, "</svg>")
	return w.Flush()
}

// bars draws the median rate of each row, with a line from the slowest to the fastest repeat.
func bars(w io.Writer, r *bench.Report) {
	fastest := 0.0
	for i := range r.Rows {
		fastest = max(fastest, r.Rows[i].RateMax)
	}
	grid(w, fastest, 0)
	step := (width - left - right) / float64(len(r.Rows))
	for i := range r.Rows {
		row := &r.Rows[i]
		x := left + (float64(i)+0.5)*step
		y := vertical(row.Rate, fastest)
		fmt.Fprintf(w, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x-step*0.3, y, step*0.6, height-below-y, colours[0])
		line(w, []point{{x, vertical(row.RateMin, fastest)}, {x, vertical(row.RateMax, fastest)}}, "#000", "")
		text(w, x, height-below+16, "middle", row.Workload)
		text(w, x, height-below+32, "middle", row.Subject)
	}
}

// curves draws for each subject its median rate, the extremes dotted, and the median latency
// dashed, with a scale at the right, if calls were timed. The abscissa is logarithmic.
func curves(w io.Writer, r *bench.Report) {
	fastest, slowest := 0.0, 0.0
	least, most := math.Inf(1), math.Inf(-1)
	var subjects []string
	for i := range r.Rows {
		row := &r.Rows[i]
		fastest, slowest = max(fastest, row.RateMax), max(slowest, milliseconds(row))
		least, most = min(least, row.X), max(most, row.X)
		if !slices.Contains(subjects, row.Subject) {
			subjects = append(subjects, row.Subject)
		}
	}
	grid(w, fastest, slowest)
	at := func(x float64) float64 {
		if most <= least {
			return (left + width - right) / 2
		}
		return left + (width-right-left)*math.Log(x/least)/math.Log(most/least)
	}
	for i, subject := range subjects {
		colour := colours[i%len(colours)]
		var rate, slow, fast, latency []point
		for j := range r.Rows {
			row := &r.Rows[j]
			if i == 0 || row.Subject == subjects[0] {
				text(w, at(row.X), height-below+16, "middle", fmt.Sprint(row.X))
			}
			if row.Subject != subject {
				continue
			}
			x := at(row.X)
			rate, latency = append(rate, point{x, vertical(row.Rate, fastest)}), append(latency, point{x, vertical(milliseconds(row), slowest)})
			slow, fast = append(slow, point{x, vertical(row.RateMin, fastest)}), append(fast, point{x, vertical(row.RateMax, fastest)})
		}
		line(w, rate, colour, "")
		line(w, slow, colour, "2 3")
		line(w, fast, colour, "2 3")
		if slowest > 0 {
			line(w, latency, colour, "8 4")
		}
		fmt.Fprintf(w, "<text x=\"%.0f\" y=\"%d\" fill=\"%s\">%s</text>\n", left+float64(i)*220, 44, colour, html.EscapeString(subject))
	}
	text(w, width/2, height-8, "middle", r.Sweep)
}

// grid draws the scales: messages per second at the left and, unless slowest is 0, milliseconds at the right.
func grid(w io.Writer, fastest, slowest float64) {
	text(w, left, 24, "start", "messages per second (dotted: slowest and fastest repeat)")
	if slowest > 0 {
		text(w, width-right, 24, "end", "median latency in ms (dashed)")
	}
	for i := range gridLines + 1 {
		share := float64(i) / gridLines
		y := vertical(share, 1)
		line(w, []point{{left, y}, {width - right, y}}, "#ddd", "")
		text(w, left-8, y+4, "end", fmt.Sprintf("%.0f", share*fastest))
		if slowest > 0 {
			text(w, width-right+8, y+4, "start", fmt.Sprintf("%.2f", share*slowest))
		}
	}
}

func milliseconds(row *bench.Row) float64 { return row.P50.Seconds() * 1e3 }

// vertical returns the ordinate of a value on a scale that ends at greatest.
func vertical(value, greatest float64) float64 {
	if greatest <= 0 {
		return height - below
	}
	return height - below - (height-below-top)*value/greatest
}

type point struct{ x, y float64 }

func line(w io.Writer, points []point, colour, dashes string) {
	var b strings.Builder
	for _, p := range points {
		fmt.Fprintf(&b, "%.1f,%.1f ", p.x, p.y)
	}
	fmt.Fprintf(w, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" stroke-dasharray=\"%s\"/>\n", strings.TrimSpace(b.String()), colour, dashes)
}

func text(w io.Writer, x, y float64, anchor, s string) {
	fmt.Fprintf(w, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, html.EscapeString(s))
}
