package lint_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
)

// grows finds memory whose size is not a constant, and tables of what waits.
var grows = regexp.MustCompile(`bufio\.New(Reader|Writer)|make\(\[\]byte, [^)]*[a-z]|bytes\.Buffer|slices\.Grow|queue\.NewDraft\(|io\.ReadAll|json\.NewEncoder|\.Tally\(|budget\.Bodies`)

// constant are files whose only such memory is that of a few bytes, or is the same for all clients.
var constant = map[string]string{
	"internal/frontend/webui/files.go": "the page, packed once", "internal/frontend/tcp/conn.go": "the share",
}

// TestTheTableOfBuffers: docs/ARCHITECTURE.md has a row for each use of the budget, and each file between the sockets and the broker
// that holds what a client sends or does not read.
func TestTheTableOfBuffers(t *testing.T) {
	_, section, ok := strings.Cut(documentOf(t, "docs/ARCHITECTURE.md").text, "\n## Memory\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	var uses []string
	named := map[string]bool{}
	code := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || strings.Contains(line, "---") || strings.Contains(line, "| buffer |") {
			continue
		}
		if use := strings.TrimSpace(cells[2]); use != "–" {
			uses = append(uses, use)
		}
		require.NotEmpty(t, strings.TrimSpace(cells[3]), "a bound: %s", cells[1])
		for _, m := range code.FindAllStringSubmatch(cells[5], -1) {
			_, err := os.Stat(filepath.Join("../..", m[1]))
			require.NoError(t, err, cells[1])
			named[m[1]] = true
		}
	}
	var all []string
	for _, u := range limits.Uses() {
		all = append(all, u.String())
	}
	slices.Sort(uses)
	slices.Sort(all)
	require.Equal(t, all, uses, "one row for each use of the budget")
	for _, s := range sources(t) {
		dir := s.dir()
		edge := dir == "internal/frontend/webui" || dir == "coordinator/gateway" || dir == "internal/frontend/httpapi/consume" || dir == "internal/frontend/listen" || dir == "internal/auth/guard" ||
			below(dir, "internal/frontend/tcp") || below(dir, "internal/frontend/httpapi")
		if s.test || !edge || constant[s.path] != "" || named[s.path] {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../..", s.path))
		require.NoError(t, err)
		if found := grows.FindString(string(text)); found != "" {
			t.Errorf("%s holds memory of a client (%s): add it to a row of the table in docs/ARCHITECTURE.md, with its bound", s.path, found)
		}
	}
}
