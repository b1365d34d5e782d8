package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

// secretBytes is the random part of a token.
const secretBytes = 32

// hashScheme begins the hash of a token in the metadata.
const hashScheme = "sha256:"

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

// hashOf is fast: a slow hash protects only secrets that can be guessed, not 256 random bits, and would let strangers occupy the
// brokers.
func hashOf(name, secret string) string {
	sum := sha256.Sum256([]byte("lockstep token\x00" + name + "\x00" + secret))
	return hashScheme + hex.EncodeToString(sum[:])
}

// verify returns the identity of a token: ErrBadToken.
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

// owner returns the user that a token names, or nil, and its secret, "" if it has not the form of a token.
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

// bootstrapped compares a token with that of --bootstrap-admin-token-file.
func bootstrapped(want []byte, token string) bool {
	if len(want) == 0 {
		return false
	}
	a, b := sha256.Sum256(want), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
