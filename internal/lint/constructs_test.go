package lint_test

import (
	"go/ast"
	"go/token"
	"testing"
)

// sleepers are the test files that may sleep for real, with the reason. In a
// bubble of testing/synctest a sleep takes no time, so those files may.
var sleepers = map[string]string{}

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

func TestNoSleepInTests(t *testing.T) {
	for _, s := range sources(t) {
		_, fakeTime := s.imports()["testing/synctest"]
		if !s.test || fakeTime || sleepers[s.path] != "" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if isCall(n, "time", "Sleep") {
				t.Errorf("%s: time.Sleep; wait for the condition, or use testing/synctest", s.at(n))
			}
			return true
		})
	}
}

// TestDecisionsStartNothing keeps goroutines and channels out of the packages
// that the simulator replays.
func TestDecisionsStartNothing(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || s.dir() != "coordinator/replica" && s.dir() != "coordinator/placement" {
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
