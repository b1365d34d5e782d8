package env

import (
	"errors"
	"os"
	"path/filepath"
)

// Repository is the innermost folder with a go.mod that contains the current one.
func Repository() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, stat := os.Stat(filepath.Join(dir, "go.mod")); stat == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the current folder is in no repository")
		}
	}
	return "", err
}
