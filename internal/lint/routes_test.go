package lint_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
)

// TestRoutesAreDescribed: every route has a summary, and is in docs/reference/openapi.yaml.
func TestRoutesAreDescribed(t *testing.T) {
	document, err := os.ReadFile("../../docs/reference/openapi.yaml")
	require.NoError(t, err)
	for _, route := range slices.Concat(httpapi.Routes(), httpapi.LookupRoutes()) {
		if route.Summary == "" {
			t.Errorf("%s %s has no summary: add it, then make reference", route.Method, route.Path)
		}
		if path := strings.Replace(route.Path, ":opt", "{opt}", 1); !strings.Contains(string(document), "\n  "+path+":\n") {
			t.Errorf("%s is not in docs/reference/openapi.yaml: make reference", route.Path)
		}
	}
}
