package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

var (
	// span is a part of a line in backquotes.
	span = regexp.MustCompile("`([^`]+)`")
	// commandLine is a command line of nsqctl: the words of the command, and the rest up to a comment or another command.
	commandLine = regexp.MustCompile(`(?:^|[\s/(])nsqctl((?: [a-z][\w-]*)+)([^|;&#)]*)`)
	// writtenFlag is a flag of the rest.
	writtenFlag = regexp.MustCompile(`(?:^|\s)--([a-z][\w-]*)`)
)

// TestCommandsInDocuments: each command line of nsqctl in a document has a command and flags of this build.
func TestCommandsInDocuments(t *testing.T) {
	known, root := 0, newRoot()
	for _, name := range documents(t) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, code := range codeOf(strings.ReplaceAll(string(text), "\\\n", " ")) {
			for _, m := range commandLine.FindAllStringSubmatch(code, -1) {
				known++
				if fault := faultOf(root, strings.Fields(m[1]), m[2]); fault != "" {
					t.Errorf("%s: %s: %s", name, strings.TrimSpace(m[0]), fault)
				}
			}
		}
	}
	require.Greater(t, known, 200)
}

// faultOf names the first word or flag that a command line does not have; "" if it is right.
func faultOf(root *cobra.Command, words []string, rest string) string {
	cmd, more, err := root.Find(words)
	if err != nil {
		return err.Error()
	}
	if cmd.HasSubCommands() && len(more) > 0 {
		return "there is no command " + cmd.CommandPath() + " " + more[0]
	}
	rest, _, _ = strings.Cut(rest, " -- ") // the flags of another program
	for _, m := range writtenFlag.FindAllStringSubmatch(rest, -1) {
		if m[1] != "help" && cmd.Flag(m[1]) == nil {
			return cmd.CommandPath() + " has no flag --" + m[1]
		}
	}
	return ""
}

// codeOf lists the lines of the code blocks of a document, and the parts of its other lines that are in backquotes.
func codeOf(text string) (code []string) {
	fenced := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fenced = !fenced
		case fenced || strings.HasPrefix(line, "    "):
			code = append(code, strings.TrimSpace(line))
		default:
			for _, m := range span.FindAllStringSubmatch(line, -1) {
				code = append(code, m[1])
			}
		}
	}
	return code
}

// documents lists the Markdown files of the repository.
func documents(t *testing.T) (names []string) {
	t.Helper()
	const top = "../.."
	others := []string{"bin", "dist", "data", "node_modules"}
	require.NoError(t, filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != top && (strings.HasPrefix(d.Name(), ".") || slices.Contains(others, d.Name())):
			if d.IsDir() {
				return filepath.SkipDir
			}
		case strings.HasSuffix(name, ".md"):
			names = append(names, name)
		}
		return nil
	}))
	return names
}
