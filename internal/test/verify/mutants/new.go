package mutants

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
)

// New writes the changes of the working tree (of Go sources, against the index) as a
// patch, and takes them out of the working tree. It returns the file of the patch. Both
// need git.
func New(root, name, rule, witnesses string) (file string, err error) {
	diff, err := git(root, nil, "diff", "--no-color", "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/", "--", "*.go")
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("# rule: %s\n# witnesses: %s\n%s", rule, witnesses, diff)
	if _, err := parse(name, text); err != nil {
		return "", fmt.Errorf("mutants: %s: %w", name, err)
	}
	file = filepath.Join(root, filepath.FromSlash(Folder), name+".patch")
	if err := write(file, []byte(text)); err != nil {
		return "", err
	}
	_, err = git(root, diff, "apply", "-R")
	return file, err
}

func git(root string, stdin []byte, args ...string) ([]byte, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = root, bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("mutants: git %s: %w: %s", args[0], err, stderr.String())
	}
	return out, nil
}
