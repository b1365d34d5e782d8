package access

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// FirstFile is the name of the file in a broker's data path with the secret that makes the first administrator. The secret grants
// nothing else, and nothing at all while there is an administrator.
const FirstFile = "first-admin.token"

// firstPrefix begins the secret.
const firstPrefix = "first-admin."

// OpenFirst reads the secret for the first administrator in a directory, and makes it if it is missing. Only the owner can read
// the file.
func OpenFirst(dir string) (secret []byte, file string, err error) {
	if file, err = filepath.Abs(filepath.Join(dir, FirstFile)); err != nil {
		return nil, "", err
	}
	text, err := os.ReadFile(file)
	switch {
	case err == nil && len(text) > 0: // an empty one lost its bytes in a power cut
		if found, ok := ParseFirst(text); ok {
			return []byte(found), file, os.Chmod(file, 0o600)
		}
		return nil, file, fmt.Errorf("%s has no secret for the first administrator: remove it, and the next start makes a new one", file)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, file, err
	}
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // never fails
	secret = []byte(firstPrefix + base64.RawURLEncoding.EncodeToString(random))
	// A file that is cut off by a crash would be no secret: it appears as a whole.
	if err = os.WriteFile(file+".new", append(secret, '\n'), 0o600); err == nil {
		err = os.Rename(file+".new", file)
	}
	return secret, file, err
}

// ParseFirst reads the text of the file.
func ParseFirst(text []byte) (secret string, ok bool) {
	secret = strings.TrimSpace(string(text))
	random, found := strings.CutPrefix(secret, firstPrefix)
	decoded, err := base64.RawURLEncoding.DecodeString(random)
	return secret, found && err == nil && len(decoded) == secretBytes
}
