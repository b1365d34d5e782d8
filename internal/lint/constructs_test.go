package lint_test

import (
	"go/ast"
	"go/token"
	"testing"
)

func TestNoGotoNoInit(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BranchStmt:
				if n.Tok == token.GOTO {
					t.Errorf("%s: goto; write a function", s.at(n))
				}
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					t.Errorf("%s: init; let the caller construct what it needs", s.at(n))
				}
			}
			return true
		})
	}
}

// propertySkips are the test files whose properties reject inputs with a skip.
var propertySkips = map[string]bool{"nsqd/reference_test.go": true, "nsqd/modelrules_test.go": true}

// TestSkipsAreNoted: a test is skipped under -short, or by internal/test/testkit/env, which
// reports it to the build server.
func TestSkipsAreNoted(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test || s.dir() == "internal/test/testkit/env" || propertySkips[s.path] {
			continue
		}
		short := map[ast.Node]bool{}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if branch, ok := n.(*ast.IfStmt); ok {
				ast.Inspect(branch.Cond, func(c ast.Node) bool {
					if isCall(c, "testing", "Short") {
						short[branch.Body] = true
					}
					return true
				})
			}
			return !short[n]
		})
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return !short[n]
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && !isCall(n, "env", "Skip") &&
				(f.Sel.Name == "Skip" || f.Sel.Name == "Skipf" || f.Sel.Name == "SkipNow") {
				t.Errorf("%s: %s; use env.Skip or env.Missing", s.at(n), f.Sel.Name)
			}
			return true
		})
	}
}

// TestDecisionsStartNothing keeps goroutines and channels out of the packages that decide: the
// simulator replays them, and table tests call them directly.
func TestDecisionsStartNothing(t *testing.T) {
	for _, s := range sources(t) {
		pure := s.dir() == "coordinator/replica" || s.dir() == "coordinator/controller/plan"
		if s.test || !pure {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
				t.Errorf("%s: goroutines and channels belong to the loop around a decision", s.at(n))
			}
			return true
		})
	}
}

// isCall recognises pkg.name(…).
func isCall(n ast.Node, pkg, name string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == pkg
}
