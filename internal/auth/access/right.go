package access

import (
	"fmt"
	"strings"
)

// Right is one thing that an identity may do.
type Right uint8

// The rights. Publish, Consume and Administer are granted for patterns of topics, Observe and AdministerCluster for the cluster.
const (
	// Open needs no right: probes of supervisors.
	Open Right = 0
	// Publish stores messages, and creates the topic if topics may be created so.
	Publish Right = 1 << 0
	// Consume receives and peeks at messages, and creates channels.
	Consume Right = 1 << 1
	// Administer creates, empties, pauses and deletes topics and channels, and moves cursors.
	Administer Right = 1 << 2
	// Observe reads statistics, metrics, settings and the state of the cluster; no message.
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

// maxRights bounds the text of rights in bytes: the audit shows all of it.
const maxRights = 64

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

// maxPattern bounds a pattern in bytes: twice a name.
const maxPattern = 128

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
		case star >= 0: // the last star takes one character more
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
