package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSite: all documents of the repository become pages, and every link leads somewhere.
func TestSite(t *testing.T) {
	out := t.TempDir()
	pages, err := Build("../..", out)
	if err != nil {
		t.Error(err)
	}
	if pages < 30 {
		t.Errorf("%d pages", pages)
	}
	for name, want := range map[string]string{
		"index.html":                      `href="docs/guide/install.html"`,
		"docs/guide/README.html":          `<a href="concepts.html">Concepts</a>`,
		"docs/reference/nsqd.html":        "<li>",
		"docs/reference/nsqctl.html":      `id="cluster"`,
		"docs/reference/openapi.yaml":     "openapi: 3.1.0",
		"docs/reference/errors.html":      `href="../metrics.html"`,
		"docs/operations/run.html":        `aria-current="page"`,
		"coordinator/replica/DESIGN.html": "",
	} {
		text, err := os.ReadFile(filepath.Join(out, filepath.FromSlash(name)))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, without %s", name, err, want)
		}
	}
}

// TestLinksThatLeadNowhere are named, all of them.
func TestLinksThatLeadNowhere(t *testing.T) {
	root := t.TempDir()
	text := "# One\n\n## Two: *words*, `code`\n\n## Two: *words*, `code`\n\n[good](#two-words-code-1) [bad](#three) [gone](gone.md) [page](b.md#b) [heading](b.md#c) [other](https://example.com) ![image](no.png)\n"
	for name, text := range map[string]string{"README.md": text, "b.md": "# B\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Build(root, t.TempDir())
	want := "README.md: README.md has no heading #three\nREADME.md: there is no gone.md\nREADME.md: b.md has no heading #c\nREADME.md: there is no no.png"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
