package outcome

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden are the numbers on the wire, by text: "outcome/code/class". They never change; a new row is a new line.
var golden = map[string]string{
	"committed":      "1/0/0",
	"duplicate":      "2/0/0",
	"not the leader": "3/20/2",
	"not enough in-sync replicas, not stored": "4/40/1",
	"rolled back, not stored":                 "5/41/6",
	"in doubt, may be stored":                 "6/42/5",
	"topic is full, not stored":               "7/46/1",
	"disk reserve reached, not stored":        "8/45/1",
	"repeated":                                "9/0/0",
	"in doubt, may be stored before: the dedupe window does not reach back": "10/53/5",
	"too many message ids in the dedupe window, not stored":                 "11/54/1",
	"exiting":                              "0/43/2",
	"no leader, not stored":                "0/44/1",
	"too many puts waiting, not stored":    "0/47/1",
	"too big, not stored":                  "0/48/4",
	"not ready":                            "0/49/2",
	"rate limited, not stored":             "0/52/1",
	"quota reached, nothing stored":        "0/66/4",
	"ID not in flight":                     "0/50/4",
	"client does not own message":          "0/51/4",
	"topic not found":                      "0/60/4",
	"channel not found":                    "0/61/4",
	"broker not found":                     "0/68/4",
	"invalid argument":                     "0/62/4",
	"it exists with other settings":        "0/65/4",
	"the channel does not have the filter": "0/67/4",
	"too many consumers":                   "0/63/4",
	"the cluster cannot do this now":       "0/64/1",
}

func TestNumbersStay(t *testing.T) {
	got := map[string]string{}
	for _, r := range Rows() {
		text := map[Outcome]string{Committed: "committed", Duplicate: "duplicate", Repeated: "repeated"}[r.Outcome]
		if r.Err != nil {
			text = r.Err.Error()
		}
		got[text] = fmt.Sprintf("%d/%d/%d", r.Outcome, r.Code, r.Class)
	}
	require.Equal(t, golden, got)
}

// Each row is whole, and no number stands twice.
func TestRowsAreWhole(t *testing.T) {
	codes, outcomes := map[Code]bool{0: true, CodeUnknown: true}, map[Outcome]bool{}
	for i, r := range Rows() {
		name := fmt.Sprintf("row %d, %v", i, r.Err)
		require.True(t, r.Outcome != 0 || r.Err != nil, name)
		require.Equal(t, r.Outcome != 0, r.Effect != 0, "%s: an outcome has an effect", name)
		if r.Outcome != 0 {
			require.False(t, outcomes[r.Outcome], "%s: outcome %d stands twice", name, r.Outcome)
			outcomes[r.Outcome] = true
			require.Equal(t, r, r.Outcome.Row(), name)
		}
		if r.Err == nil {
			require.Equal(t, Commits, r.Effect, "%s: all but a commit has an error", name)
			continue
		}
		require.False(t, codes[r.Code], "%s: code %d stands twice", name, r.Code)
		codes[r.Code] = true
		require.NotContains(t, r.Class.String(), "(", "%s has a class", name)
		require.NotZero(t, r.Uses, name)
		require.Equal(t, r.Uses&OfPuts != 0, r.Label != "", "%s: the answers to puts are counted, no others", name)
		require.True(t, r.Uses&OfPuts == 0 || r.HTTP.Status >= 400, "%s: the answer to a put has an HTTP status", name)
		stored := r.Class == ClassInDoubt
		require.Equal(t, stored, r.Effect == Doubts || r.HTTP.Status == 504, "%s: class and answers agree", name)
		require.False(t, stored && strings.Contains(r.Err.Error(), "not stored"), name)
	}
	for o := Outcome(1); o <= lastOutcome; o++ {
		require.True(t, outcomes[o], "outcome %d has a row", o)
	}
	require.False(t, Outcome(0).Known())
	require.False(t, (lastOutcome + 1).Known())
	require.Zero(t, (lastOutcome + 1).Row())
}

// Every sentinel and every outcome that table.go declares stands in the table.
func TestEveryDeclarationHasARow(t *testing.T) {
	inTable, declared := map[string]bool{}, []string{}
	for _, d := range parse(t, "table.go").Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range g.Specs {
			v, ok := s.(*ast.ValueSpec)
			if !ok {
				continue
			}
			for _, n := range v.Names {
				typed, _ := v.Type.(*ast.Ident)
				if strings.HasPrefix(n.Name, "Err") || typed != nil && typed.Name == "Outcome" {
					declared = append(declared, n.Name)
				}
				if n.Name == "rows" {
					ast.Inspect(v.Values[0], func(n ast.Node) bool {
						if id, ok := n.(*ast.Ident); ok {
							inTable[id.Name] = true
						}
						return true
					})
				}
			}
		}
	}
	require.Greater(t, len(declared), 20)
	for _, name := range declared {
		require.True(t, inTable[name], "%s has no row", name)
	}
}

// The packages of the edge make no errors of the cluster of their own: each error of internal/api is one of this table.
func TestEdgeHasNoOtherErrors(t *testing.T) {
	files, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		ast.Inspect(parse(t, f), func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "New" {
				if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "errors" {
					t.Errorf("%s makes an error that has no row", f)
				}
			}
			return true
		})
	}
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	return f
}

func TestFind(t *testing.T) {
	r, ok := Find(fmt.Errorf("%w: ask n2: %w", ErrUnavailable, ErrExiting), OfRequests)
	require.True(t, ok)
	require.Equal(t, ErrUnavailable, r.Err, "its text names the step that failed")
	_, ok = Find(ErrInvalid, OfPuts)
	require.False(t, ok)
	require.Equal(t, "ok", LabelOf(nil))
	require.Equal(t, "in_doubt", LabelOf(fmt.Errorf("t/3: %w", ErrInDoubt)))
	require.Equal(t, LabelRefused, LabelOf(errors.New("odd")))
}
