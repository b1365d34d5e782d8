// Command site makes a static site of the Markdown files of the repository: one page for each
// file, with a menu. It fails if a link of a page leads nowhere, and writes the page nonetheless.
//
//	go run . ROOT OUT
//
// Links to other files of the repository, such as an OpenAPI document, are kept: these files are
// copied, and a folder becomes a list of its files. The site has no scripts and no outside
// requests. Links to other sites are not followed.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

//go:embed page.html
var layout string

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: site ROOT OUT")
		os.Exit(64)
	}
	pages, err := Build(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Printf("%d pages in %s\n", pages, os.Args[2])
}

// page is one Markdown file.
type page struct {
	path   string // from the root, with slashes
	source []byte
	tree   ast.Node
	ids    map[string]bool // of its headings
	title  string
}

// site is the pages of a repository.
type site struct {
	root, out string
	pages     map[string]*page
	copied    map[string]bool
	faults    []error
}

// Build writes the site of a repository into a folder and returns the number of pages. The
// error lists all links that lead nowhere.
func Build(root, out string) (int, error) {
	s := &site{root: root, out: out, pages: map[string]*page{}, copied: map[string]bool{}}
	if err := s.read(); err != nil {
		return 0, err
	}
	names := make([]string, 0, len(s.pages))
	for name := range s.pages {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := s.write(s.pages[name]); err != nil {
			return 0, err
		}
	}
	return len(names), errors.Join(s.faults...)
}

// omitted are folders without documents for readers.
var omitted = map[string]bool{"bin": true, "dist": true, "data": true, "node_modules": true, "testdata": true}

func markdown() goldmark.Markdown {
	return goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
}

// read parses all Markdown files.
func (s *site) read() error {
	return filepath.WalkDir(s.root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != s.root && (strings.HasPrefix(d.Name(), ".") || omitted[d.Name()]) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".md") {
			return nil
		}
		rel, err := filepath.Rel(s.root, name)
		if err != nil {
			return err
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		p := &page{path: filepath.ToSlash(rel), source: source, ids: map[string]bool{}}
		p.parse()
		s.pages[p.path] = p
		return nil
	})
}

// parse reads the tree of a page, with the ids of headings that GitHub gives.
func (p *page) parse() {
	p.tree = markdown().Parser().Parse(text.NewReader(p.source))
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if h, ok := n.(*ast.Heading); ok && entering {
			words := plain(h, p.source)
			if p.title == "" {
				p.title = words
			}
			id := slug(words)
			for base, i := id, 1; p.ids[id]; i++ {
				id = fmt.Sprintf("%s-%d", base, i)
			}
			p.ids[id] = true
			h.SetAttributeString("id", []byte(id))
		}
		return ast.WalkContinue, nil
	})
}

// plain is the text of a node.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

var dropped = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)

// slug is the id that GitHub gives to a heading.
func slug(heading string) string {
	return strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// address is the place of a page in the site.
func address(name string) string {
	if name == "README.md" {
		return "index.html"
	}
	return strings.TrimSuffix(name, ".md") + ".html"
}

// write resolves the links of a page and renders it.
func (s *site) write(p *page) error {
	err := ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			to, err := s.resolve(p, string(n.Destination))
			n.Destination = []byte(to)
			return ast.WalkContinue, err
		case *ast.Image:
			to, err := s.resolve(p, string(n.Destination))
			n.Destination = []byte(to)
			return ast.WalkContinue, err
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return err
	}
	var body bytes.Buffer
	if err := markdown().Renderer().Render(&body, p.source, p.tree); err != nil {
		return err
	}
	up := strings.Repeat("../", strings.Count(p.path, "/"))
	var b bytes.Buffer
	if err := template.Must(template.New("page").Parse(layout)).Execute(&b, map[string]any{
		"Title": p.title, "Body": template.HTML(body.String()), "Menu": s.menu(p, up), // the Markdown is ours
	}); err != nil {
		return err
	}
	return s.put(address(p.path), b.Bytes())
}

// resolve gives the link in the site for one of the repository. A link that leads nowhere is
// noted.
func (s *site) resolve(p *page, to string) (string, error) {
	if strings.Contains(to, ":") {
		return to, nil // another site
	}
	name, fragment, _ := strings.Cut(to, "#")
	target := p.path
	if name != "" {
		target = path.Join(path.Dir(p.path), name)
	}
	if other, ok := s.pages[target]; ok {
		if fragment != "" && !other.ids[fragment] {
			s.faults = append(s.faults, fmt.Errorf("%s: %s has no heading #%s", p.path, target, fragment))
		}
		rel, err := filepath.Rel(path.Dir(p.path), address(target))
		if err != nil {
			return "", err
		}
		if fragment != "" {
			rel += "#" + fragment
		}
		return filepath.ToSlash(rel), nil
	}
	info, err := os.Stat(filepath.Join(s.root, filepath.FromSlash(target)))
	switch {
	case err != nil:
		s.faults = append(s.faults, fmt.Errorf("%s: there is no %s", p.path, target))
		return to, nil
	case info.IsDir():
		return strings.TrimSuffix(to, "/") + "/index.html", s.list(target)
	}
	return to, s.copy(target)
}

// copy puts a file of the repository into the site.
func (s *site) copy(name string) error {
	if s.copied[name] {
		return nil
	}
	s.copied[name] = true
	b, err := os.ReadFile(filepath.Join(s.root, filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	return s.put(name, b)
}

// list puts a folder into the site: its files, and a page with their names.
func (s *site) list(folder string) error {
	if s.copied[folder] {
		return nil
	}
	s.copied[folder] = true
	entries, err := os.ReadDir(filepath.Join(s.root, filepath.FromSlash(folder)))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!doctype html><title>%s</title><h1>%s</h1><ul>", template.HTMLEscapeString(folder), template.HTMLEscapeString(folder))
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		switch {
		case e.IsDir() || strings.HasPrefix(e.Name(), "."):
			continue
		case s.pages[name] != nil:
			name = address(name)
		default:
			if err := s.copy(name); err != nil {
				return err
			}
		}
		fmt.Fprintf(&b, `<li><a href="%s">%s</a>`, template.HTMLEscapeString(path.Base(name)), template.HTMLEscapeString(e.Name()))
	}
	return s.put(folder+"/index.html", b.Bytes())
}

func (s *site) put(name string, b []byte) error {
	to := filepath.Join(s.out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// entry is a line of the menu; without a link it is a heading.
type entry struct {
	Title, Link string
	Here        bool
}

// menu lists the guide, the operations pages, the reference and the other documents.
func (s *site) menu(p *page, up string) (entries []entry) {
	for _, group := range []struct{ title, folder string }{{"Guide", "docs/guide"}, {"Operations", "docs/operations"}, {"Reference", "docs/reference"}, {"Documents", "docs"}} {
		entries = append(entries, entry{Title: group.title})
		for _, name := range s.in(group.folder) {
			entries = append(entries, entry{s.pages[name].title, up + address(name), name == p.path})
		}
	}
	return entries
}

// in lists the pages of a folder, a README first.
func (s *site) in(folder string) (names []string) {
	for name := range s.pages {
		if path.Dir(name) == folder {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if x, y := path.Base(a) == "README.md", path.Base(b) == "README.md"; x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(s.pages[a].title, s.pages[b].title)
	})
	return names
}
