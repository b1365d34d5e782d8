package mutation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// Line is the verdict in a file of results: verdict, tests that reach the site, milliseconds, site, the test that noticed it.
func (v Verdict) Line() string {
	what := "missed"
	switch {
	case v.Unfit:
		what = "unfit"
	case v.Noticed:
		what = "noticed"
	}
	return fmt.Sprintf("%s\t%d\t%d\t%s\t%s\n", what, v.Reached, v.Took.Milliseconds(), v.Site, v.By)
}

// ReadVerdicts reads the verdicts about the given sites from a file of results. The last line about a site counts.
func ReadVerdicts(file string, sites []Site) ([]Verdict, error) {
	text, err := os.ReadFile(file)
	if file == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	read := map[string]Verdict{}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 5 {
			return nil, fmt.Errorf("mutation: %s: not a verdict: %q", file, line)
		}
		reached, _ := strconv.Atoi(f[1])
		ms, _ := strconv.Atoi(f[2])
		read[f[3]] = Verdict{Noticed: f[0] == "noticed", Unfit: f[0] == "unfit", Reached: reached, Took: time.Duration(ms) * time.Millisecond, By: f[4]}
	}
	var verdicts []Verdict
	for _, s := range sites {
		if v, ok := read[s.String()]; ok {
			v.Site = s
			verdicts = append(verdicts, v)
		}
	}
	return verdicts, nil
}
