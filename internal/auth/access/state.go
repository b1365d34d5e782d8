package access

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
)

// state is the value of a user's key (version 1). Rights are words, so that an operator can read them.
type state struct {
	V           int          `json:"v"`
	Certificate bool         `json:"certificate,omitempty"`
	Hash        string       `json:"hash,omitempty"` // of the token; see hashOf
	TokenID     string       `json:"token_id,omitempty"`
	Cluster     string       `json:"cluster,omitempty"`
	Grants      []grantState `json:"grants,omitempty"`
	Quota       Quota        `json:"quota,omitzero"`
}

type grantState struct {
	Topic  string `json:"topic"`
	Rights string `json:"rights"`
}

// ErrInvalid means that a name, a pattern or a right is malformed.
var ErrInvalid = errors.New("access: invalid argument")

func (u *User) encode() []byte {
	s := state{V: metadata.Version, Certificate: u.Certificate, Hash: u.Hash, TokenID: u.TokenID, Cluster: u.Cluster.String(), Quota: u.Quota}
	if u.Cluster == 0 {
		s.Cluster = ""
	}
	for _, g := range u.Grants {
		s.Grants = append(s.Grants, grantState{Topic: string(g.Topic), Rights: g.Rights.String()})
	}
	return metadata.Encode(s)
}

// decodeUser reads the value of a user's key. With an error it returns a user without rights or credentials (invariant 2).
func decodeUser(name string, e metadata.Entry) (*User, error) {
	var s state
	nobody := &User{Name: name, Revision: e.Mod}
	if err := json.Unmarshal(e.Value, &s); err != nil || s.V < 1 || s.V > metadata.Version {
		return nobody, fmt.Errorf("%w: user %s, version %d", metadata.ErrValue, name, s.V)
	}
	u := &User{Name: name, Certificate: s.Certificate, Hash: s.Hash, TokenID: s.TokenID, Quota: s.Quota, Revision: e.Mod}
	var err error
	if s.Cluster != "" {
		if u.Cluster, err = ParseClusterRights(s.Cluster); err != nil {
			return nobody, err
		}
	}
	for _, g := range s.Grants {
		rights, err := ParseTopicRights(g.Rights)
		if err != nil {
			return nobody, err
		}
		u.Grants = append(u.Grants, grant{Topic: Pattern(g.Topic), Rights: rights})
	}
	return u, nil
}

func validName(name string) error {
	switch {
	case !api.ValidName(name) || strings.ContainsRune(name, '#'):
		return fmt.Errorf("%w: a user name must have 1 to 64 letters, digits, dots, - and _, not %q", ErrInvalid, name)
	case name == BootstrapUser:
		return fmt.Errorf("%w: the name %s is reserved for --bootstrap-admin-token-file", ErrInvalid, name)
	}
	return nil
}

func (u *User) granted(topic Pattern, rights Right) []grant {
	grants := slices.Clone(u.Grants)
	if i := slices.IndexFunc(grants, func(g grant) bool { return g.Topic == topic }); i >= 0 {
		grants[i].Rights |= rights
		return grants
	}
	return append(grants, grant{Topic: topic, Rights: rights})
}

func (u *User) revoked(topic Pattern, rights Right) (grants []grant) {
	for _, g := range u.Grants {
		if g.Topic == topic {
			g.Rights &^= rights
		}
		if g.Rights != 0 {
			grants = append(grants, g)
		}
	}
	return grants
}
