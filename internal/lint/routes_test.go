package lint_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
)

// TestRoutesAreDescribed: every route has its arguments in internal/frontend/httpapi/routes.go, and is in
// docs/reference/openapi.yaml. The router refuses to serve one without.
func TestRoutesAreDescribed(t *testing.T) {
	document, err := os.ReadFile("../../docs/reference/openapi.yaml")
	require.NoError(t, err)
	for _, rule := range slices.Concat(httpapi.NSQDRules(), httpapi.LookupRules()) {
		route, ok := httpapi.DescriptionOf(rule.Method, rule.Path)
		if !ok || route.Summary == "" {
			t.Errorf("%s %s is not described: add it to internal/frontend/httpapi/routes.go, then make reference", rule.Method, rule.Path)
		}
		if path := strings.Replace(rule.Path, ":opt", "{opt}", 1); !strings.Contains(string(document), "\n  "+path+":\n") {
			t.Errorf("%s is not in docs/reference/openapi.yaml: make reference", rule.Path)
		}
	}
}
