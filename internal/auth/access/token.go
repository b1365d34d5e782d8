package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	secretBytes = 32 // the random part of a token
	hashScheme  = "sha256:"
	firstPrefix = "first-admin." // prefix of the secret for the first administrator
)

// noUser is compared with the tokens of unknown users: the time of a check must not reveal which names exist.
var noUser = hashOf("", "")

// ErrBadToken means that no user has this token.
var ErrBadToken = errors.New("access: no user has this token")

// issue makes a token for a user, with its hash and id for the metadata.
func issue(name string) (token, id, hash string) {
	secret, number := make([]byte, secretBytes), make([]byte, 8)
	_, _ = rand.Read(secret) // never fails: it ends the process instead
	_, _ = rand.Read(number)
	text := base64.RawURLEncoding.EncodeToString(secret)
	return name + "." + text, hex.EncodeToString(number), hashOf(name, text)
}

// hashOf is fast: a slow hash protects only secrets that can be guessed, not 256 random bits, and would let
// unauthenticated clients use up the brokers' CPU.
func hashOf(name, secret string) string {
	sum := sha256.Sum256([]byte("lockstep token\x00" + name + "\x00" + secret))
	return hashScheme + hex.EncodeToString(sum[:])
}

// verify returns the identity of a token, or ErrBadToken.
func (p *Policy) verify(token string) (Identity, error) {
	u, secret := p.owner(token)
	if secret == "" {
		return Identity{}, ErrBadToken
	}
	name, hash := "", noUser // an unknown name takes as long as a known one
	if u != nil {
		name, hash = u.Name, u.Hash
	}
	if subtle.ConstantTimeCompare([]byte(hashOf(name, secret)), []byte(hash)) != 1 || u == nil {
		return Identity{}, ErrBadToken
	}
	return Identity{Kind: Named, Name: u.Name, TokenID: u.TokenID}, nil
}

// owner returns the user that a token names, or nil, and its secret, "" if it does not have the form of a token.
func (p *Policy) owner(token string) (*User, string) {
	i := strings.LastIndexByte(token, '.')
	if i < 0 {
		return nil, ""
	}
	u, secret := p.users[token[:i]], token[i+1:]
	if len(secret) != base64.RawURLEncoding.EncodedLen(secretBytes) {
		return nil, ""
	}
	if u == nil || u.TokenID == "" || u.Hash == "" {
		return nil, secret
	}
	return u, secret
}

func bootstrapped(want []byte, token string) bool {
	if len(want) == 0 {
		return false
	}
	a, b := sha256.Sum256(want), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// FirstFile is the name of the file in a broker's data path with the secret that creates the first administrator. The
// secret grants nothing else, and nothing at all while there is an administrator.
const FirstFile = "first-admin.token"

// OpenFirst reads the secret for the first administrator in a directory, and creates it if it is missing. Only the
// owner can read the file.
func OpenFirst(dir string) (secret []byte, file string, err error) {
	if file, err = filepath.Abs(filepath.Join(dir, FirstFile)); err != nil {
		return nil, "", err
	}
	text, err := os.ReadFile(file)
	switch {
	case err == nil && len(text) > 0: // an empty file lost its bytes in a power cut
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
	// The file is created atomically, because a file that was truncated by a crash would be no secret.
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
