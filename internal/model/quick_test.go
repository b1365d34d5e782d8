package model

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"encoding/json"
)

func TestOne(t *testing.T) {
	var c Config
	if err := json.Unmarshal([]byte(os.Getenv("C")), &c); err != nil {
		t.Skip(err)
	}
	c.MaxStates, _ = strconv.Atoi(os.Getenv("N"))
	start := time.Now()
	r := Explore(c)
	t.Logf("%s: states %d transitions %d depth %d steps %d complete %v %s in %s\n%s", c.Name, r.States, r.Transitions, r.Depth, r.BrokerSteps, r.Complete, r.Failure, time.Since(start), strings.Join(r.Trace, "\n"))
}
