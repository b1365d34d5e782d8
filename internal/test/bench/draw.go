package bench

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/wcharczuk/go-chart/v2"
)

// Draw writes the rates into an SVG file: curves if the rows are of a sweep, else bars.
func (r *Report) Draw(name string) error {
	if len(r.Rows) == 0 {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if r.Sweep != "" {
		err = r.curves().Render(chart.SVG, f)
	} else {
		err = r.bars().Render(chart.SVG, f)
	}
	if err != nil {
		return fmt.Errorf("bench: draw %s: %w", name, err)
	}
	return f.Close()
}

// bars draws one bar per row, scaled to the greatest.
func (r *Report) bars() chart.BarChart {
	c := chart.BarChart{Title: "messages per second", Width: 140 * max(len(r.Rows), 4), Height: 480, BarWidth: 60,
		Background: chart.Style{Padding: chart.Box{Top: 50, Bottom: 20}}}
	for i := range r.Rows {
		x := &r.Rows[i]
		c.Bars = append(c.Bars, chart.Value{Label: fmt.Sprintf("%s %s", x.Workload, x.Subject), Value: x.Rate})
	}
	if len(c.Bars) == 1 { // the library cannot scale a single bar
		c.Bars = append(c.Bars, chart.Value{})
	}
	return c
}

// curves draws for each subject the median rate, its extremes dotted, and on the left axis the
// median latency if calls were timed. The abscissa is the logarithm of the changed parameter;
// the library's own logarithmic range puts 1 and 2 at the same place.
func (r *Report) curves() chart.Chart {
	var subjects []string
	var ticks []chart.Tick
	curves := map[string]*curve{}
	fastest, slowest := 0.0, 0.0
	for i := range r.Rows {
		x := &r.Rows[i]
		tick := chart.Tick{Value: math.Log2(x.X), Label: strconv.FormatFloat(x.X, 'f', 0, 64)}
		if !slices.Contains(ticks, tick) {
			ticks = append(ticks, tick)
		}
		if curves[x.Subject] == nil {
			curves[x.Subject] = &curve{}
			subjects = append(subjects, x.Subject)
		}
		curves[x.Subject].add(x)
		fastest, slowest = max(fastest, x.RateMax), max(slowest, milliseconds(x.P50))
	}
	c := chart.Chart{Width: 900, Height: 480, Title: "by " + r.Sweep,
		Background: chart.Style{Padding: chart.Box{Top: 60, Left: 185, Right: 20, Bottom: 20}},
		XAxis:      chart.XAxis{Name: r.Sweep, Ticks: ticks},
		YAxis:      chart.YAxis{Name: "messages per second", Range: &chart.ContinuousRange{Max: fastest}, ValueFormatter: chart.IntValueFormatter},
	}
	if slowest > 0 {
		c.YAxisSecondary = chart.YAxis{Name: "milliseconds", Range: &chart.ContinuousRange{Max: slowest}}
	}
	for i, name := range subjects {
		c.Series = append(c.Series, curves[name].series(name, i, slowest > 0)...)
	}
	c.Elements = []chart.Renderable{chart.LegendLeft(&c)}
	return c
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// curve holds one subject's points.
type curve struct{ x, rate, least, most, p50 []float64 }

func (c *curve) add(r *Row) {
	c.x = append(c.x, math.Log2(r.X))
	c.rate = append(c.rate, r.Rate)
	c.least = append(c.least, r.RateMin)
	c.most = append(c.most, r.RateMax)
	c.p50 = append(c.p50, milliseconds(r.P50))
}

func (c *curve) series(subject string, i int, timed bool) []chart.Series {
	line := chart.Style{StrokeColor: chart.GetDefaultColor(2 * i), StrokeWidth: 2, DotWidth: 3, DotColor: chart.GetDefaultColor(2 * i)}
	dotted := chart.Style{StrokeColor: line.StrokeColor, StrokeWidth: 1, StrokeDashArray: []float64{2, 3}}
	out := []chart.Series{
		chart.ContinuousSeries{Name: subject + ": messages/s", XValues: c.x, YValues: c.rate, Style: line},
		chart.ContinuousSeries{Name: subject + ": least", XValues: c.x, YValues: c.least, Style: dotted},
		chart.ContinuousSeries{Name: subject + ": most", XValues: c.x, YValues: c.most, Style: dotted},
	}
	if timed {
		slow := chart.Style{StrokeColor: chart.GetDefaultColor(2*i + 1), StrokeWidth: 2, StrokeDashArray: []float64{6, 3}}
		out = append(out, chart.ContinuousSeries{Name: subject + ": p50, ms", XValues: c.x, YValues: c.p50, YAxis: chart.YAxisSecondary, Style: slow})
	}
	return out
}
