package mutation

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Kind is a kind of change.
type Kind string

// The kinds.
const (
	Negated Kind = "condition negated"
	Moved   Kind = "bound moved"
	Logic   Kind = "and, or"
	Dropped Kind = "statement dropped"
	Ignored Kind = "error ignored"
	Lock    Kind = "lock not taken"
	Swapped Kind = "calls swapped"
)

// Site is a place of the source and its change.
type Site struct {
	Package string // directory, relative to the root
	File    string // relative to the root
	Line    int
	Kind    Kind
	Text    string // the source that changes, on one line
	edits   []edit // with guard in place of the condition
}

// edit replaces the bytes from `from` to `to`.
type edit struct {
	from, to int
	text     string
}

// guard stands for the condition of a mutant in the text of an edit.
const guard = "\x00"

// String names the site.
func (s Site) String() string { return fmt.Sprintf("%s:%d: %s: %s", s.File, s.Line, s.Kind, s.Text) }

// span is the extent of the change, in bytes of the file.
func (s Site) span() (from, to int) {
	from, to = s.edits[0].from, s.edits[0].to
	for _, e := range s.edits {
		from, to = min(from, e.from), max(to, e.to)
	}
	return from, to
}

// Sites lists the sites of packages, which are directories relative to root.
func Sites(root string, packages []string) ([]Site, error) {
	var all []Site
	for _, dir := range packages {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			return nil, err
		}
		slices.Sort(files)
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			name, err := filepath.Rel(root, f)
			if err != nil {
				return nil, err
			}
			source, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			list, err := sitesOf(dir, name, source)
			if err != nil {
				return nil, err
			}
			all = append(all, list...)
		}
	}
	return all, nil
}

// Draw chooses n sites, none inside another.
func Draw(sites []Site, seed uint64, n int) []Site {
	sites = slices.Clone(sites)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(sites), func(i, j int) { sites[i], sites[j] = sites[j], sites[i] })
	var drawn []Site
	taken := map[string][]Site{}
	for _, s := range sites {
		if len(drawn) == n {
			break
		}
		from, to := s.span()
		if slices.ContainsFunc(taken[s.File], func(o Site) bool { a, b := o.span(); return from < b && a < to }) {
			continue
		}
		taken[s.File] = append(taken[s.File], s)
		drawn = append(drawn, s)
	}
	return drawn
}

type finder struct {
	dir, name string
	source    []byte
	files     *token.FileSet
	found     []Site
}

func sitesOf(dir, name string, source []byte) ([]Site, error) {
	f := &finder{dir: dir, name: name, source: source, files: token.NewFileSet()}
	file, err := parser.ParseFile(f.files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			ast.Inspect(fn.Body, f.visit)
		}
	}
	return f.found, nil
}

func (f *finder) at(p token.Pos) int { return f.files.Position(p).Offset }

func (f *finder) text(n ast.Node) string { return string(f.source[f.at(n.Pos()):f.at(n.End())]) }

func (f *finder) add(kind Kind, n ast.Node, edits ...edit) {
	text := strings.Join(strings.Fields(f.text(n)), " ")
	if len(text) > 90 {
		text = text[:90] + "…"
	}
	f.found = append(f.found, Site{
		Package: f.dir, File: f.name, Line: f.files.Position(n.Pos()).Line, Kind: kind, Text: text, edits: edits,
	})
}

// insert surrounds a node.
func (f *finder) around(n ast.Node, before, after string) []edit {
	from, to := f.at(n.Pos()), f.at(n.End())
	return []edit{{from, from, before}, {to, to, after}}
}

// instead replaces an expression by another under the guard.
func (f *finder) instead(n ast.Expr, other string) edit {
	return edit{f.at(n.Pos()), f.at(n.End()), "(" + guard + " && (" + other + ") || !" + guard + " && (" + f.text(n) + "))"}
}

var moved = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.condition(n.Cond)
		if c, ok := n.Cond.(*ast.BinaryExpr); ok && c.Op == token.NEQ && isNil(c.Y) && isErr(c.X) {
			f.add(Ignored, c, f.around(c, "!"+guard+" && (", ")")...)
		}
	case *ast.ForStmt:
		if n.Cond != nil {
			f.condition(n.Cond)
		}
	case *ast.BinaryExpr:
		if op, ok := moved[n.Op]; ok {
			f.add(Moved, n, f.instead(n, f.text(n.X)+op.String()+f.text(n.Y)))
		}
		switch n.Op {
		case token.LAND:
			f.add(Logic, n, f.instead(n, "("+f.text(n.X)+") || ("+f.text(n.Y)+")"))
		case token.LOR:
			f.add(Logic, n, f.instead(n, "("+f.text(n.X)+") && ("+f.text(n.Y)+")"))
		}
	case *ast.BlockStmt:
		f.list(n.List)
	case *ast.CaseClause:
		f.list(n.Body)
	case *ast.CommClause:
		f.list(n.Body)
	}
	return true
}

func (f *finder) condition(c ast.Expr) { f.add(Negated, c, f.around(c, guard+" != (", ")")...) }

// list finds the statements of a block that can be dropped, and neighbours that can be swapped.
func (f *finder) list(stmts []ast.Stmt) {
	for i, s := range stmts {
		if f.lock(stmts, i) {
			continue
		}
		if !f.droppable(s) {
			continue
		}
		f.add(Dropped, s, f.around(s, "if !"+guard+" { ", " }")...)
		if i+1 < len(stmts) && isCall(s) && isCall(stmts[i+1]) && f.droppable(stmts[i+1]) {
			a, b := f.text(s), f.text(stmts[i+1])
			f.add(Swapped, s, edit{f.at(s.Pos()), f.at(stmts[i+1].End()), "if " + guard + " { " + b + "; " + a + " } else { " + a + "; " + b + " }"})
		}
	}
}

// lock finds a lock that is taken for the rest of the function.
func (f *finder) lock(stmts []ast.Stmt, i int) bool {
	name := f.method(stmts[i])
	switch {
	case name == "Unlock", name == "RUnlock":
		return true
	case name != "Lock" && name != "RLock":
		return false
	}
	if i+1 < len(stmts) {
		if d, ok := stmts[i+1].(*ast.DeferStmt); ok && strings.HasSuffix(f.text(d.Call.Fun), "."+strings.Replace(name, "Lock", "Unlock", 1)) {
			edits := append(f.around(stmts[i], "if !"+guard+" { ", " }"), f.around(d.Call, "func() { if !"+guard+" { ", " } }()")...)
			f.add(Lock, stmts[i], edits...)
		}
	}
	return true
}

// logs are methods of loggers, and of statements that only begin or end a span.
var logs = regexp.MustCompile(`^(Debug|Info|Warn|Error|Fatal|Print|Log)(f|ln)?$`)

// droppable reports whether a program without the statement may compile, and differ.
func (f *finder) droppable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE && f.text(s.Lhs[0]) != "_"
	case *ast.IncDecStmt, *ast.SendStmt:
		return true
	case *ast.ExprStmt:
		name := f.method(s)
		return name != "" && name != "panic" && !logs.MatchString(name)
	}
	return false
}

// method is the name of the function or method that a statement calls.
func (f *finder) method(s ast.Stmt) string {
	e, ok := s.(*ast.ExprStmt)
	if !ok {
		return ""
	}
	c, ok := e.X.(*ast.CallExpr)
	if !ok {
		return ""
	}
	switch fn := c.Fun.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		return fn.Sel.Name
	}
	return ""
}

func isCall(s ast.Stmt) bool {
	e, ok := s.(*ast.ExprStmt)
	if ok {
		_, ok = e.X.(*ast.CallExpr)
	}
	return ok
}

func isNil(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "nil"
}

func isErr(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && strings.HasPrefix(strings.ToLower(id.Name), "err")
}
