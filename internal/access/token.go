package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"
)

const (
	// secretBytes is the random part of a token.
	secretBytes = 32
	// hashCost is bcrypt's: about 50 ms. The secrets are random, so more would only cost the brokers.
	hashCost = bcrypt.DefaultCost
	// maxVerified bounds the tokens that are remembered as verified.
	maxVerified = 4096
	// maxHashing bounds the tokens that are hashed at the same time: bad logins must not
	// take every processor.
	maxHashing = 1
)

// noUser is the hash that the tokens of unknown users are compared with: their time must not
// reveal which names exist. Its result is ignored.
const noUser = "$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"

// ErrBadToken means that no user has this token.
var ErrBadToken = errors.New("access: no user has this token")

// issue makes a token for a user, with its hash and id for the metadata.
func issue(name string) (token, id, hash string, err error) {
	secret, number := make([]byte, secretBytes), make([]byte, 8)
	_, _ = rand.Read(secret) // never fails: it ends the process instead
	_, _ = rand.Read(number)
	text := base64.RawURLEncoding.EncodeToString(secret)
	h, err := bcrypt.GenerateFromPassword([]byte(text), hashCost)
	return name + "." + text, hex.EncodeToString(number), string(h), err
}

// verified is the user and the token id of a verified token.
type verified struct{ name, tokenID string }

// verifier remembers the tokens that were verified.
type verifier struct {
	key     [sha256.Size]byte
	hashing chan struct{} // a seat for each bcrypt that runs
	mu      struct {
		sync.Mutex
		known map[[sha256.Size]byte]verified
	}
}

func newVerifier() *verifier {
	v := &verifier{hashing: make(chan struct{}, maxHashing)}
	_, _ = rand.Read(v.key[:]) // never fails
	v.mu.known = map[[sha256.Size]byte]verified{}
	return v
}

// sum names a token in the cache. Its key is random, so that the time of a look-up reveals
// nothing about the tokens in it.
func (v *verifier) sum(token string) (sum [sha256.Size]byte) {
	m := hmac.New(sha256.New, v.key[:])
	m.Write([]byte(token))
	m.Sum(sum[:0])
	return sum
}

func (v *verifier) remembered(sum [sha256.Size]byte) (verified, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	found, ok := v.mu.known[sum]
	return found, ok
}

func (v *verifier) remember(sum [sha256.Size]byte, of verified) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.mu.known) >= maxVerified {
		clear(v.mu.known)
	}
	v.mu.known[sum] = of
}

// drop forgets the tokens that are no user's any more.
func (v *verifier) drop(p *Policy) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for sum, of := range v.mu.known {
		if u := p.users[of.name]; u == nil || u.TokenID != of.tokenID {
			delete(v.mu.known, sum)
		}
	}
}

// verify gives the identity of a token under a policy.
func (v *verifier) verify(ctx context.Context, p *Policy, token string) (Identity, error) {
	sum := v.sum(token)
	if of, ok := v.remembered(sum); ok {
		id := Identity{Kind: Named, Name: of.name, TokenID: of.tokenID}
		if p.Holds(id) {
			return id, nil
		}
		return Identity{}, ErrBadToken
	}
	u, secret := p.owner(token)
	if secret == "" {
		return Identity{}, ErrBadToken
	}
	hash := noUser // an unknown name takes as long as a known one
	if u != nil {
		hash = u.Hash
	}
	select {
	case v.hashing <- struct{}{}:
	case <-ctx.Done():
		return Identity{}, ctx.Err()
	}
	err := bcrypt.CompareHashAndPassword([]byte(hash), []byte(secret))
	<-v.hashing
	if err != nil || u == nil {
		return Identity{}, ErrBadToken
	}
	v.remember(sum, verified{u.Name, u.TokenID})
	return Identity{Kind: Named, Name: u.Name, TokenID: u.TokenID}, nil
}

// owner gives the user that a token names, nil if there is none with a token, and the secret in
// it, "" if it has not the form of a token.
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
