package lint_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/licensecheck"
	"github.com/stretchr/testify/require"
)

var rewriteModules = flag.Bool("rewrite", false, "write testdata/nsqd-modules.txt; reasons of new modules are left to the author")

// modulesOf lists the modules that packages are built of, with the directories of their
// sources.
func modulesOf(t *testing.T, args ...string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-json=Module"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("go list: %s", exit.Stderr)
	}
	require.NoError(t, err)
	modules := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Module *struct {
				Path, Dir string
				Main      bool
			}
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		if p.Module != nil && !p.Module.Main {
			modules[p.Module.Path] = p.Module.Dir
		}
	}
	require.NotEmpty(t, modules)
	return modules
}

// modulesFile lists the modules of the daemon, each with the reason why it is there.
const modulesFile = "testdata/nsqd-modules.txt"

// TestModulesOfTheDaemon pins the modules that nsqd is built of. A new one is a decision: its
// reason is a line of the file.
func TestModulesOfTheDaemon(t *testing.T) {
	content, err := os.ReadFile(modulesFile)
	require.NoError(t, err)
	reasons := map[string]string{}
	for line := range strings.Lines(string(content)) {
		name, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		reasons[name] = strings.TrimSpace(reason)
	}
	is := slices.Sorted(maps.Keys(modulesOf(t, "./cmd/nsqd")))
	if *rewriteModules {
		var b strings.Builder
		for _, name := range is {
			fmt.Fprintf(&b, "%-62s %s\n", name, reasons[name])
		}
		require.NoError(t, os.WriteFile(modulesFile, []byte(b.String()), 0o644))
	}
	require.Equal(t, slices.Sorted(maps.Keys(reasons)), is, "go test ./internal/lint -run ModulesOfTheDaemon -rewrite, and give the reason of each new module")
	for name, reason := range reasons {
		require.NotEmpty(t, reason, "%s has no reason", name)
	}
	for _, plot := range []string{"github.com/nsqio/go-nsq", "github.com/schollz/progressbar/v3"} {
		require.NotContains(t, is, plot, "it belongs to nsqctl and the benchmarks")
	}
}

// licences are those that a module of the two programs may have: the licence of this
// repository goes together with them.
var licences = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Unlicense", "CC0-1.0"}

// testLicences are further ones that a module may have that only the tests use: none of it is
// passed on.
var testLicences = []string{"MPL-2.0"}

// TestLicences: every module of the two programs and of the tests has a licence of the lists.
func TestLicences(t *testing.T) {
	shipped, all := modulesOf(t, "./cmd/..."), modulesOf(t, "-test", "./...")
	for name, dir := range all {
		allowed := licences
		if shipped[name] == "" {
			allowed = slices.Concat(licences, testLicences)
		}
		found := licencesIn(t, dir)
		require.NotEmpty(t, found, "%s has no licence that is recognised in %s", name, dir)
		for _, l := range found {
			require.Contains(t, allowed, l, "%s", name)
		}
	}
}

var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$`)

// licencesIn recognises the licences in the root of a module.
func licencesIn(t *testing.T, dir string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenceName.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		for _, m := range licensecheck.Scan(text).Match {
			if !m.IsURL {
				found = append(found, m.ID)
			}
		}
	}
	return found
}

// TestLicencesAreRecognised: a text of a licence that is not on the list is found as such, and
// no text is no licence.
func TestLicencesAreRecognised(t *testing.T) {
	dir := t.TempDir()
	require.Empty(t, licencesIn(t, dir))
	gpl := "This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License as published by\nthe Free Software Foundation, either version 3 of the License, or (at your option) any later version."
	require.NoError(t, os.WriteFile(filepath.Join(dir, "COPYING"), []byte(gpl), fs.ModePerm&0o644))
	require.NotEmpty(t, licencesIn(t, dir))
	require.NotSubset(t, licences, licencesIn(t, dir))
}
