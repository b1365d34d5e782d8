package httpapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
)

// TestEveryCodeIsExplained: no code goes out without a sentence next to it, and no sentence is for a code that
// is not.
func TestEveryCodeIsExplained(t *testing.T) {
	codes := map[string]bool{}
	for _, folder := range []string{"*.go", "../../auth/guard/browser.go"} {
		files, err := filepath.Glob(folder)
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") || name == "consumed.go" { // the event "end" of consumed.go is not an error
				continue
			}
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			require.NotContains(t, string(content), `map[string]string{"message": `, "%s: an error that passes by the details", name)
			for _, match := range regexp.MustCompile(`(?:decline\(http\.\w+, |fail\(http\.\w+, |refuse\(http\.\w+, |message: |missing: |invalid: |orElse\(|orMissing\(|return )"([A-Z][A-Z_]+)"`).FindAllStringSubmatch(string(content), -1) {
				if match[1] != "OK" {
					codes[match[1]] = true
				}
			}
		}
	}
	for _, row := range outcome.Rows() {
		if m := row.HTTP.Message; m != "" && m == strings.ToUpper(m) {
			codes[m] = true
		}
	}
	require.Greater(t, len(codes), 35)
	for code := range codes {
		require.NotEmpty(t, details[code], code)
		require.NotContains(t, details[code], code)
	}
}

// TestAFailureSaysWhatIsWrong: the code stays as NSQ has it; the detail names what was given.
func TestAFailureSaysWhatIsWrong(t *testing.T) {
	w := httptest.NewRecorder()
	(&endpoints{}).refuse(w, httptest.NewRequest("GET", "/", nil), explain(http.StatusBadRequest, "INVALID_TOPIC", "%q is no name", "a b"))
	var body map[string]string
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
	require.Equal(t, map[string]string{"message": "INVALID_TOPIC", "detail": `"a b" is no name`}, body)
	require.Len(t, []rune(clipped(strings.Repeat("x", 1000))), 81)

	w = httptest.NewRecorder()
	(&endpoints{}).refuse(w, httptest.NewRequest("GET", "/", nil), fail(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED"))
	require.JSONEq(t, `{"message":"METHOD_NOT_ALLOWED","detail":"`+details["METHOD_NOT_ALLOWED"]+`"}`, w.Body.String())
}

// TestTimesHaveUnits: a delay and a life are given with their unit, or in NSQ's milliseconds; neither wraps.
func TestTimesHaveUnits(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0s", "1500": "1.5s", "90s": "1m30s", "1h30m": "1h30m0s", "0s": "0s", "9223372036854775807": "2562047h47m16.854s",
	} {
		d, ok := span(text)
		require.True(t, ok, text)
		require.Equal(t, want, d.String(), text)
	}
	for _, text := range []string{"", "-1", "-1s", "x", "1.5", "99999999999999999999", "1 s", "300y"} {
		_, ok := span(text)
		require.False(t, ok, text)
	}
}

// TestAuditedRoutesHaveSentences: the console says in words what each audited route does.
func TestAuditedRoutesHaveSentences(t *testing.T) {
	for _, rule := range slices.Concat(Routes(), LookupRoutes()) {
		if rule.Audited {
			e := guard.Entry{Identity: "alice", Action: rule.Method + " " + rule.Path, Result: guard.ResultOK}
			require.NotContains(t, console.AuditSentence(&e), rule.Path)
		}
	}
}
