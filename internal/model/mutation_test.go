package model

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestMut(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("N"))
	for i, m := range Mutations() {
		if w := os.Getenv("HALF"); w != "" && strconv.Itoa(i%2) != w {
			continue
		}
		if o := os.Getenv("ONLY"); o != "" && !strings.Contains(o, m.Rule) {
			continue
		}
		m.Config.MaxStates = n
		start := time.Now()
		r := Explore(m.Config)
		fmt.Printf("%-20s len %d states %d complete %v %s (%s)\n", m.Rule, len(r.Trace), r.States, r.Complete, r.Failure, time.Since(start).Round(time.Millisecond))
		if os.Getenv("TRACE") != "" {
			fmt.Println(strings.Join(r.Trace, "\n"))
		}
	}
}
