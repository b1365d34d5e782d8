package mutation

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

const module = "module example.com/m\n\ngo 1.26\n"

const source = `package m

import "sync"

type Counter struct {
	mu    sync.Mutex
	total int
	log   []int
	unread int
}

// Add adds n, unless it is above the limit of 10.
func (c *Counter) Add(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 10 {
		return false
	}
	c.total += n
	c.note(n)
	c.count()
	return true
}

func (c *Counter) note(n int) { c.log = append(c.log, n) }

func (c *Counter) count() { c.unread++ }

func never(err error, n int) bool {
	if err != nil {
		return n != 1 && n != 2
	}
	return false
}
`

const tests = `package m

import (
	"sync"
	"testing"
)

func TestAdd(t *testing.T) {
	var c Counter
	if !c.Add(3) || c.Add(12) || c.total != 3 {
		t.Fatal(c.total)
	}
}

func TestTogether(t *testing.T) {
	var c Counter
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { c.Add(1) })
	}
	wg.Wait()
	if len(c.log) != 4 {
		t.Fatal(c.log)
	}
}
`

// repository writes a module with one package and its tests.
func repository(t *testing.T, source, tests string) (root string) {
	root = t.TempDir()
	for name, text := range map[string]string{"go.mod": module, "m/m.go": source, "m/m_test.go": tests} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	t.Setenv("GOFLAGS", "-mod=mod")
	return root
}

// A test notices a change, or reaches it and notices nothing, or no test reaches it. A lock needs the race detector, whose build
// takes a while: LOCKSTEP_LONG.
func TestJudgement(t *testing.T) {
	root := repository(t, source, tests)
	want := map[string]string{
		"condition negated: n > 10":                   "noticed",
		"statement dropped: c.total += n":             "noticed",
		"statement dropped: c.log = append(c.log, n)": "noticed",
		"statement dropped: c.unread++":               "missed",
		"calls swapped: c.note(n)":                    "missed",
		"error ignored: err != nil":                   "not reached",
		"and, or: n != 1 && n != 2":                   "not reached", // go vet would refuse it
	}
	if env.Long() {
		want["lock not taken: c.mu.Lock()"] = "noticed"
	}
	all, err := Sites(root, []string{"m"})
	require.NoError(t, err)
	require.Len(t, all, 12)
	var sites []Site
	for _, s := range all {
		if want[string(s.Kind)+": "+s.Text] != "" {
			sites = append(sites, s)
		}
	}
	r := Runner{Root: root, Dir: t.TempDir(), Tests: []string{"m"}, Workers: 2, Log: t.Logf}
	verdicts, err := r.Run(t.Context(), Draw(sites, 1, len(sites)))
	require.NoError(t, err)
	got := map[string]string{}
	for _, v := range verdicts {
		what := "missed"
		switch {
		case v.Unfit:
			what = "unfit"
		case v.Noticed:
			what = "noticed"
		case v.Reached == 0:
			what = "not reached"
		}
		got[string(v.Kind)+": "+v.Text] = what
	}
	require.Equal(t, want, got)
}

// A change that does not compile is left out, and the others are judged.
func TestWhatDoesNotCompile(t *testing.T) {
	root := repository(t, "package m\n\ntype flag bool\n\nfunc F(a flag, n *int) {\n\tif a {\n\t\t*n = 1\n\t}\n}\n",
		"package m\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) {\n\tvar n int\n\tF(true, &n)\n\tif n != 1 {\n\t\tt.Fatal(n)\n\t}\n}\n")
	sites, err := Sites(root, []string{"m"})
	require.NoError(t, err)
	require.Len(t, sites, 2)
	r := Runner{Root: root, Dir: t.TempDir(), Tests: []string{"m"}, Workers: 1, Log: t.Logf}
	verdicts, err := r.Run(t.Context(), Draw(sites, 1, 2))
	require.NoError(t, err)
	for _, v := range verdicts {
		require.Equal(t, v.Kind == Negated, v.Unfit, v.Site)
		require.Equal(t, v.Kind == Dropped, v.Noticed, v.Site)
	}
}

// A seed draws the same sites, none inside another.
func TestDraw(t *testing.T) {
	sites, err := sitesOf("m", "m/m.go", []byte(source))
	require.NoError(t, err)
	a, b := Draw(sites, 7, 5), Draw(sites, 7, 5)
	require.Equal(t, a, b)
	require.Len(t, a, 5)
	for i, s := range a {
		from, to := s.span()
		for _, o := range a[:i] {
			begin, end := o.span()
			require.False(t, from < end && begin < to, "%s and %s", s, o)
		}
	}
}
