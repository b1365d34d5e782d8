package main

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
)

const (
	width     = 1200.0
	row       = 17
	narrowest = 1.2 // narrower boxes are omitted
	letter    = 6.2 // width of a letter, approximately
)

const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" font-family="sans-serif" font-size="11">
<style>rect{stroke:#fff;stroke-width:.4}.o{fill:#f0a35c}.r{fill:#c4c4c4}.s{fill:#8fbbe3}.l{fill:#efe3a0}</style>
<rect width="100%%" height="100%%" fill="#fff"/>
<text x="4" y="14">%s. Orange: ours; blue: system calls; grey: the runtime; yellow: libraries. A box is as wide as its share of the time.</text>
`

// kinds are the classes of functions by the prefixes of their names; the other functions are
// of libraries.
var kinds = []struct{ prefix, class string }{
	{"syscall.", "s"}, {"internal/runtime/syscall", "s"}, {"golang.org/x/sys", "s"}, {"internal/poll.", "s"},
	{"runtime", "r"}, {"internal/runtime", "r"},
	{"cmd/", "o"}, {"commitlog", "o"}, {"coordinator", "o"}, {"internal/", "o"}, {"nsqd", "o"}, {"rpc", "o"}, {"main.", "o"},
}

// draw writes a flame graph: callers below, callees above them, by name.
func draw(out io.Writer, root *frame, title string) error {
	w := bufio.NewWriter(out)
	height := row * (root.depth(narrowest*float64(root.total)/width) + 2)
	fmt.Fprintf(w, head, width, height, html.EscapeString(title))
	box(w, root, 0, float64(height-row), width/float64(root.total))
	fmt.Fprintln(w, "</svg>")
	return w.Flush()
}

// box draws a frame and its calls above it.
func box(w io.Writer, f *frame, x, y, scale float64) {
	wide := float64(f.total) * scale
	if wide < narrowest {
		return
	}
	fmt.Fprintf(w, `<g><title>%s %.1f %%</title><rect class="%s" x="%.1f" y="%.0f" width="%.1f" height="%d"/>`,
		html.EscapeString(f.name), 100*wide/width, class(f.name), x, y, wide, row-1)
	if n := int((wide - 4) / letter); n >= 3 {
		fmt.Fprintf(w, `<text x="%.1f" y="%.0f">%s</text>`, x+2, y+row-5, html.EscapeString(label(f.name, n)))
	}
	fmt.Fprintln(w, "</g>")
	names := make([]string, 0, len(f.children))
	for name := range f.children {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		box(w, f.children[name], x, y-row, scale)
		x += float64(f.children[name].total) * scale
	}
}

func class(name string) string {
	for _, k := range kinds {
		if strings.HasPrefix(name, k.prefix) {
			return k.class
		}
	}
	return "l"
}

// label shortens a name to n letters: first it removes the path, then the end.
func label(name string, n int) string {
	if len(name) > n {
		name = name[strings.LastIndexByte(name, '/')+1:]
	}
	return name[:min(len(name), n)]
}

// depth returns the height of the tree, without omitted frames.
func (f *frame) depth(least float64) int {
	deepest := 0
	for _, c := range f.children {
		if float64(c.total) >= least {
			deepest = max(deepest, c.depth(least))
		}
	}
	return deepest + 1
}
