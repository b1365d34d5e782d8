package option_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/option"
)

var rewrite = flag.Bool("rewrite", false, "write internal/frontend/webui/src/options.ts")

// consoleField is a row for the console's dialogs.
type consoleField struct {
	Name    string   `json:"name"`
	View    string   `json:"view"` // the field of the topic's settings
	Label   string   `json:"label"`
	Kind    string   `json:"kind"` // duration, number or choice
	Hint    string   `json:"hint"`
	Choices []string `json:"choices,omitempty"`
}

func consoleFields() (list []consoleField) {
	views := reflect.TypeFor[option.Effective]()
	for i, r := range option.Topics {
		f := consoleField{Name: r.Name, View: views.Field(i).Tag.Get("json"), Label: r.Label, Choices: r.Choices}
		switch r.Kind {
		case option.Duration:
			f.Kind, f.Hint = "duration", "A duration such as 24h"
			short := func(ms int64) string {
				return strings.TrimSuffix(strings.TrimSuffix((time.Duration(ms)*time.Millisecond).String(), "0s"), "0m")
			}
			if r.Max > 0 {
				f.Hint += fmt.Sprintf(", %s to %s", short(r.Min), short(r.Max))
			} else if r.Min > 0 {
				f.Hint += fmt.Sprintf(", %s or more", short(r.Min))
			}
			f.Hint += "; 0s: " + r.Zero + "."
		case option.Choice:
			f.Kind, f.Hint = "choice", strings.ToUpper(r.Help[:1])+r.Help[1:]+"."
		default:
			f.Kind, f.Hint = "number", "0: "+r.Zero+"."
		}
		list = append(list, f)
	}
	return list
}

// TestConsoleFields: the console's fields follow the table.
func TestConsoleFields(t *testing.T) {
	const path = "../frontend/webui/src/options.ts"
	var b strings.Builder
	b.WriteString("// Generated from the table in internal/option (`make reference`).\n")
	b.WriteString("export interface TopicOption { name: string; view: string; label: string; kind: string; hint: string; choices?: string[] }\n\n")
	b.WriteString("export const topicOptions: TopicOption[] = [\n")
	for _, f := range consoleFields() {
		text, err := json.Marshal(f)
		require.NoError(t, err)
		fmt.Fprintf(&b, "  %s,\n", text)
	}
	b.WriteString("];\n")
	if *rewrite {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
	}
	is, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(is), "the options have changed: make reference, make ui")
}
