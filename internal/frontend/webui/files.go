// Package webui is the web console at /ui. Its TypeScript sources are in src; make ui builds the files in dist, which are part of
// the repository and of the binary, so that no other build needs npm. TestDistIsBuiltFromTheSources compares them.
//
// Invariants:
//
//  1. The console contacts no other host, so it works on a network without access to the internet.
//  2. Its files hold nothing about the cluster, so that a browser gets them before a sign-in. The data come from the
//     routes of internal/frontend/httpapi, each of which checks its right.
//  3. No script or style is inline in the page: the Content-Security-Policy refuses them.
package webui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
)

//go:embed dist
var dist embed.FS

// policy lets the page load its own files and contact its own broker; no page may frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
}

// File is one file of the console.
type File struct {
	Path      string // of its route: /ui for the page, else below /ui/
	mediaType string
	plain     []byte
	packed    []byte // gzip; nil if it is not smaller
	tag       string // of the plain bytes
}

// Files returns the files of the console. It panics if there are none, because dist is part of the repository.
func Files() []File {
	entries, err := dist.ReadDir("dist")
	if err != nil {
		panic("webui: " + err.Error())
	}
	var files []File
	for _, e := range entries {
		content, err := dist.ReadFile("dist/" + e.Name())
		if err != nil {
			panic("webui: " + err.Error())
		}
		route := "/ui/" + strings.TrimSuffix(e.Name(), ".txt")
		if e.Name() == "index.html" {
			route = "/ui"
		}
		files = append(files, newFile(route, types[path.Ext(e.Name())], content))
	}
	return files
}

func newFile(route, mediaType string, content []byte) File {
	f := File{Path: route, mediaType: mediaType, plain: content, tag: fmt.Sprintf("%x", sha256.Sum256(content))[:16]}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(content) // a buffer takes everything
	_ = w.Close()
	if packed.Len() < len(content) {
		f.packed = packed.Bytes()
	}
	return f
}

// ServeHTTP serves the file. The browser revalidates it each time, because the next broker may run a different build.
func (f File) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.mediaType)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept-Encoding")
	content, tag := f.plain, `"`+f.tag+`"`
	if f.packed != nil && takesGzip(r) {
		content, tag = f.packed, `"`+f.tag+`-gzip"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(content) // the client may have disconnected
}

// takesGzip reads Accept-Encoding. A client that gives gzip a weight (gzip;q=…) gets the plain file.
func takesGzip(r *http.Request) bool {
	return slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), func(s string) bool { return strings.TrimSpace(s) == "gzip" })
}
