package webui_test

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/frontend/webui"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

func ask(f webui.File, headers ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(http.MethodGet, f.Path, nil), httptest.NewRecorder()
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	f.ServeHTTP(w, r)
	return w
}

// TestFilesNeedNothingFromElsewhere: the page loads its own files alone, and the policy refuses
// everything else.
func TestFilesNeedNothingFromElsewhere(t *testing.T) {
	files := map[string]string{}
	for _, f := range webui.Files() {
		w := ask(f)
		require.Equal(t, http.StatusOK, w.Code)
		require.NotEmpty(t, w.Header().Get("Content-Type"), f.Path)
		csp := w.Header().Get("Content-Security-Policy")
		require.Contains(t, csp, "default-src 'none'")
		require.Contains(t, csp, "frame-ancestors 'none'")
		require.NotContains(t, csp, "unsafe")
		files[f.Path] = w.Body.String()
	}
	page := files["/ui"]
	require.Contains(t, page, "<title>Lockstep</title>")
	require.NotRegexp(t, `(?i)<style|<script[^>]*>[^<]|\son[a-z]+=|style=`, page, "the policy refuses what stands in the page itself")
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		require.Contains(t, files, "/"+m[1], "the page names a file that is served")
	}
	for path, text := range files {
		if path != "/ui/licences" {
			require.NotRegexp(t, `(?i)(src|href|url|import|fetch)\s*[=(]\s*["'\x60]?https?:`, text, path)
		}
	}
}

func TestFilesAreCachedAndPacked(t *testing.T) {
	for _, f := range webui.Files() {
		plain, packed := ask(f), ask(f, "Accept-Encoding", "br, gzip")
		if packed.Header().Get("Content-Encoding") == "gzip" {
			r, err := gzip.NewReader(packed.Body)
			require.NoError(t, err)
			text, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Equal(t, plain.Body.String(), string(text), f.Path)
			require.NotEqual(t, plain.Header().Get("ETag"), packed.Header().Get("ETag"))
		}
		again := ask(f, "If-None-Match", plain.Header().Get("ETag"))
		require.Equal(t, http.StatusNotModified, again.Code)
		require.Zero(t, again.Body.Len())
	}
}

// TestDistIsBuiltFromTheSources builds the console as make ui does, in another folder.
func TestDistIsBuiltFromTheSources(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages of npm; left out with -short")
	}
	if _, err := exec.LookPath("npm"); err != nil {
		env.Missing(t, "npm (package npm)", err)
	}
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "src"), sourceFiles{os.DirFS("src")}))
	run := func(name string, args ...string) ([]byte, error) {
		cmd := exec.Command(name, args...)
		cmd.Dir = filepath.Join(dir, "src")
		return cmd.CombinedOutput()
	}
	if text, err := run("npm", "ci", "--prefer-offline"); err != nil {
		env.Missing(t, "the packages of npm: "+string(text), err)
	}
	text, err := run("npm", "run", "--silent", "check")
	require.NoError(t, err, "types: %s", text)
	text, err = run("npm", "run", "--silent", "build")
	require.NoError(t, err, "build: %s", text)
	built, kept := contents(t, filepath.Join(dir, "dist")), contents(t, "dist")
	require.Len(t, built, len(kept))
	for name, content := range built {
		require.True(t, content == kept[name], "dist/%s is not what the sources make: run make ui, and commit it", name)
	}
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	out := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		out[e.Name()] = string(text)
	}
	return out
}

// sourceFiles hides node_modules.
type sourceFiles struct{ fs.FS }

// ReadDir implements fs.ReadDirFS.
func (s sourceFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(s.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "node_modules" }), err
}
