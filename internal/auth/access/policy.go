package access

import (
	"fmt"
	"slices"
	"strings"
)

// kind is how an identity was established.
type kind uint8

// The kinds of identities; see the package comment.
const (
	anonymous kind = iota
	Named
	Peer
)

// The names of special users.
const (
	AnonymousUser = "anonymous"       // its rights are those of every client without credentials
	BootstrapUser = "bootstrap-admin" // the administrator of --bootstrap-admin-token-file
)

// Identity is one client, as input of the decision. The zero value is anonymous.
type Identity struct {
	Kind kind
	Name string // of a Named one
	// TokenID is the id of the token that the client presented; "" = it presented a certificate.
	TokenID string
}

// String is the identity as written to the audit.
func (i Identity) String() string {
	switch i.Kind {
	case Named:
		return i.Name
	case Peer:
		return "peer"
	}
	return AnonymousUser
}

// grant is a set of rights on the topics that match a pattern.
type grant struct {
	Topic  Pattern
	Rights Right
}

// User is one user with its rights. It is immutable.
type User struct {
	Name        string
	Certificate bool // it logs in with a certificate of this common name
	Hash        string
	TokenID     string // "" = it has no token
	Cluster     Right
	Grants      []grant
	Quota       Quota
	Revision    int64 // of its key
}

// Quota bounds what a user creates and publishes; 0 = no limit. Topics, partitions and channels count if the user
// created them and they still exist, in the whole cluster. The rates apply at each broker. In User.Quota, 0 means the
// default (defaultQuota), and noLimit means no limit.
type Quota struct {
	Topics       int   `json:"topics,omitempty"`
	Partitions   int   `json:"partitions,omitempty"`
	Channels     int   `json:"channels,omitempty"`       // durable channels; ephemeral ones have no record
	PutRate      int64 `json:"put_rate,omitempty"`       // messages a second
	PutBytesRate int64 `json:"put_bytes_rate,omitempty"` // bytes a second
}

// noLimit is the value of User.Quota that lifts a default.
const noLimit = -1

// defaultQuota applies to a user without a quota. It is far above the needs of an application, and a fraction of the
// cluster's limits (--max-topics, --max-partitions), so one credential cannot use them up.
var defaultQuota = Quota{Topics: 1000, Partitions: 10_000, Channels: 10_000}

// EffectiveQuota is the quota with defaults filled in. The defaults do not apply to administrators of the cluster.
func (u *User) EffectiveQuota() Quota {
	q := u.Quota
	for _, n := range [...]struct {
		of        *int
		byDefault int
	}{{&q.Topics, defaultQuota.Topics}, {&q.Partitions, defaultQuota.Partitions}, {&q.Channels, defaultQuota.Channels}} {
		switch {
		case *n.of == noLimit:
			*n.of = 0
		case *n.of == 0 && u.Cluster&AdministerCluster == 0:
			*n.of = n.byDefault
		}
	}
	return q
}

func (u *User) allows(r Right, topic string) bool {
	switch {
	case u.Cluster&AdministerCluster != 0, u.Cluster&r != 0:
		return true
	case r == Discover && u.Cluster&Observe != 0:
		return true
	}
	return slices.ContainsFunc(u.Grants, func(g grant) bool { return (g.Rights&r != 0 || r == Discover) && g.Topic.Match(topic) })
}

// Policy is all users at one revision of the metadata. It is immutable.
type Policy struct {
	users    map[string]*User
	enforced bool
}

// Enforced reports whether rights are checked: only if there are users, or if the broker is configured to check them.
func (p *Policy) Enforced() bool { return p.enforced }

// Administered reports whether a user of the metadata administers the cluster.
func (p *Policy) Administered() bool { return p.administrator("") != nil }

// administrator is a user of the metadata, other than the named one, that administers the cluster, or nil.
func (p *Policy) administrator(but string) *User {
	for _, u := range p.users {
		if u.Name != but && u.Name != BootstrapUser && u.Cluster&AdministerCluster != 0 {
			return u
		}
	}
	return nil
}

// User finds a user by its name, or returns nil.
func (p *Policy) User(name string) *User { return p.users[name] }

// Allow reports whether an identity has the right: on the topic, if it is a right on topics. It allocates nothing.
func (p *Policy) Allow(id Identity, r Right, topic string) bool {
	if r == Open || id.Kind == Peer || p.everybody(r, topic) {
		return true
	}
	if id.Kind != Named {
		return false
	}
	u := p.users[id.Name]
	return u != nil && u.holds(id) && u.allows(r, topic)
}

// AllowUser is Allow for an operation that is done later on behalf of a user, without its credentials. The user of the bootstrap
// token has the rights of its operator.
func (p *Policy) AllowUser(name string, r Right, topic string) bool {
	u := p.users[name]
	return name == BootstrapUser || p.everybody(r, topic) || u != nil && u.allows(r, topic)
}

// everybody reports whether every client has the right.
func (p *Policy) everybody(r Right, topic string) bool {
	anonymous := p.users[AnonymousUser]
	return !p.enforced || anonymous != nil && anonymous.allows(r, topic)
}

// Quota is the quota of the identity's user, or of the user "anonymous". It allocates nothing.
func (p *Policy) Quota(id Identity) Quota {
	if u := p.users[id.user()]; u != nil && p.enforced {
		return u.EffectiveQuota()
	}
	return Quota{}
}

func (i Identity) user() string {
	if i.Kind == anonymous {
		return AnonymousUser
	}
	return i.Name
}

// Holds reports whether the credentials of an identity are still valid.
func (p *Policy) Holds(id Identity) bool {
	if id.Kind != Named {
		return true
	}
	u := p.users[id.Name]
	return u != nil && u.holds(id)
}

func (u *User) holds(id Identity) bool {
	if id.TokenID == "" {
		return u.Certificate
	}
	return id.TokenID == u.TokenID
}

// Permissions counts the grants of an identity.
func (p *Policy) Permissions(id Identity) int {
	u := p.users[id.user()]
	if u == nil {
		return 0
	}
	n := len(u.Grants)
	if u.Cluster != 0 {
		n++
	}
	return n
}

// ByCertificate returns the identity for a verified certificate's common name: the user of that name if the user logs
// in with certificates, otherwise anonymous.
func (p *Policy) ByCertificate(commonName string) Identity {
	if u := p.users[commonName]; u != nil && u.Certificate {
		return Identity{Kind: Named, Name: commonName}
	}
	return Identity{}
}

// Right is one thing that an identity may do.
type Right uint8

// The rights. Publish, Consume and Administer are granted for patterns of topics, Observe and AdministerCluster for the cluster.
const (
	// Open needs no right: probes of supervisors.
	Open Right = 0
	// Publish stores messages, and creates the topic if publishing may create topics.
	Publish Right = 1 << 0
	// Consume receives and peeks at messages, and creates channels.
	Consume Right = 1 << 1
	// Administer creates, empties, pauses and deletes topics and channels, and moves cursors.
	Administer Right = 1 << 2
	// Observe reads statistics, metrics, settings and the state of the cluster, but no messages.
	Observe Right = 1 << 3
	// AdministerCluster changes brokers, placement, settings, users and rights.
	AdministerCluster Right = 1 << 4
	// Discover finds the brokers of a topic: any right on the topic, or Observe. It is not granted.
	Discover Right = 1 << 7
)

const (
	topicRights   = Publish | Consume | Administer
	clusterRights = Observe | AdministerCluster
)

// names are the words of `nsqctl acl`. "administer" means Administer for a topic, and AdministerCluster for the cluster.
var names = []struct {
	right Right
	name  string
}{
	{Publish, "publish"}, {Consume, "consume"}, {Administer, "administer"}, {Observe, "observe"}, {AdministerCluster, "administer"},
}

// String names the rights of a set, with commas between.
func (r Right) String() string {
	switch r {
	case Open:
		return "open"
	case Discover:
		return "any right on the topic"
	}
	var words []string
	for _, n := range names {
		if r&n.right != 0 {
			words = append(words, n.name)
		}
	}
	return strings.Join(words, ",")
}

// ParseTopicRights reads words such as publish,consume.
func ParseTopicRights(text string) (Right, error) { return parseRights(text, topicRights) }

// ParseClusterRights reads words such as observe.
func ParseClusterRights(text string) (Right, error) { return parseRights(text, clusterRights) }

const (
	maxRights  = 64  // bytes of the text of rights: the audit shows all of it
	maxPattern = 128 // bytes of a pattern: twice a name
)

func parseRights(text string, of Right) (set Right, err error) {
	if len(text) > maxRights {
		return 0, fmt.Errorf("%w: the rights have %d bytes, at most %d", ErrInvalid, len(text), maxRights)
	}
	for word := range strings.SplitSeq(text, ",") {
		found := Right(0)
		for _, n := range names {
			if n.right&of != 0 && n.name == strings.TrimSpace(word) {
				found = n.right
			}
		}
		if found == 0 {
			return 0, fmt.Errorf("%w: right %q is not one of %s", ErrInvalid, word, of)
		}
		set |= found
	}
	return set, nil
}

// Pattern matches topics; see the package comment.
type Pattern string

// Valid reports whether the pattern can match a name at all.
func (p Pattern) Valid() bool {
	return p != "" && len(p) <= maxPattern && strings.IndexFunc(string(p), notInPattern) < 0
}

func notInPattern(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !letter && !strings.ContainsRune("._-#*?", r)
}

// Match reports whether the whole name matches. It allocates nothing; its time is bounded by the product of the two lengths.
func (p Pattern) Match(name string) bool {
	at, star, mark := 0, -1, 0
	for i := 0; i < len(name); {
		switch {
		case at < len(p) && p[at] == '*':
			star, mark = at, i
			at++
		case at < len(p) && (p[at] == '?' || p[at] == name[i]):
			at++
			i++
		case star >= 0: // the last star matches one more character
			mark++
			at, i = star+1, mark
		default:
			return false
		}
	}
	for at < len(p) && p[at] == '*' {
		at++
	}
	return at == len(p)
}
