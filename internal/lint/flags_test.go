package lint_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// referenceFlag is a flag in a table or a list of docs/reference.
	referenceFlag = regexp.MustCompile("(?m)^(?:\\||-) .*?`--([\\w-]+)`")
	// loneFlag is a part of a line in backquotes that begins with a flag, perhaps with `*` for the rest of its name.
	loneFlag = regexp.MustCompile("`--([a-z][\\w-]*)(\\*|…)?")
	// daemonLine is a command line of nsqd, up to a comment or another command.
	daemonLine = regexp.MustCompile(`(?:^|\s)(?:\S*bin/)?nsqd( [^|;&#` + "`" + `]*)`)
	// flagWord is a flag of such a line.
	flagWord = regexp.MustCompile(`\s--([a-z][\w-]*)`)
)

// flagsOfOthers are flags of etcd, etcdctl, etcdutl and docker that documents name, and names that stand for any flag.
var flagsOfOthers = map[string]bool{
	"max-txn-ops": true, "cacert": true, "cert": true, "key": true, "bump-revision": true, "read-only": true, "flag": true, "x": true,
}

// TestFlagsInDocuments: a flag that a document names in backquotes, or in a command line of nsqd, is in docs/reference, which
// is generated from the code. For nsqctl's command lines: TestCommandsInDocuments.
func TestFlagsInDocuments(t *testing.T) {
	daemon, all := map[string]bool{"help": true}, map[string]bool{"help": true}
	for _, page := range []string{"docs/reference/nsqd.md", "docs/reference/nsqctl.md"} {
		for _, m := range referenceFlag.FindAllStringSubmatch(documentOf(t, page).text, -1) {
			all[m[1]] = true
			if page == "docs/reference/nsqd.md" {
				daemon[m[1]] = true
			}
		}
	}
	require.Greater(t, len(daemon), 100)
	named := 0
	for _, d := range documents(t) {
		if below(d.path, "docs/reference") {
			continue
		}
		d.lines(func(n int, line string) {
			for _, m := range loneFlag.FindAllStringSubmatch(line, -1) {
				named++
				if !all[m[1]] && !flagsOfOthers[m[1]] && (m[2] == "" || !begins(all, m[1])) {
					t.Errorf("%s:%d: neither nsqd nor nsqctl has --%s", d.path, n, m[1])
				}
			}
			for _, command := range daemonLine.FindAllStringSubmatch(line, -1) {
				for _, m := range flagWord.FindAllStringSubmatch(command[1], -1) {
					named++
					if !daemon[m[1]] {
						t.Errorf("%s:%d: nsqd has no --%s", d.path, n, m[1])
					}
				}
			}
		})
	}
	require.Greater(t, named, 200)
}

// begins reports whether a name begins so.
func begins(names map[string]bool, prefix string) bool {
	for name := range names {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
