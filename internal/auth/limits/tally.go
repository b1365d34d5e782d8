package limits

// step is how much a tally reserves at once, so that most changes take no lock of the budget.
const step = 64 << 10

// Tally counts the memory that one connection holds for one use. Its first Free bytes reserve nothing. The zero value
// counts without a limit. Its owner must guard it with a lock.
type Tally struct {
	share    Share
	use      Use
	held     int
	reserved int
}

// Tally makes an empty tally of a share.
func (s Share) Tally(u Use) Tally { return Tally{share: s, use: u} }

// Held is the number of bytes that are held.
func (t *Tally) Held() int { return t.held }

// Take adds bytes. It returns false and changes nothing if the share has no room for them.
func (t *Tally) Take(bytes int) bool {
	if need := t.held + bytes - Free - t.reserved; need > 0 && t.share.b != nil && !t.reserve(need) {
		return false
	}
	t.held += bytes
	return true
}

// Force adds bytes without a reservation, for the first item that a connection holds.
func (t *Tally) Force(bytes int) { t.held += bytes }

func (t *Tally) reserve(need int) bool {
	b, owner := t.share.b, t.share.owner
	for _, bytes := range [2]int{max(need, step), need} {
		if b.try(owner, t.use, int64(bytes), false) {
			t.reserved += int(min(int64(bytes), b.size))
			return true
		}
	}
	if short := t.share.short; short != nil {
		short.Store(true)
	}
	return false
}

// Give subtracts bytes.
func (t *Tally) Give(bytes int) {
	t.held -= bytes
	needed := max(0, t.held-Free)
	if spare := t.reserved - needed; spare > 0 && (needed == 0 || spare >= 2*step) {
		t.reserved = needed
		t.share.b.give(t.share.owner, t.use, int64(spare))
	}
}

// Move changes the share of later reservations to the share of another tally. It does nothing unless this tally is
// empty, because reserved memory stays with its share.
func (t *Tally) Move(to Tally) {
	if t.reserved == 0 && t.held == 0 {
		*t = to
	}
}

// Use says what memory is held for. docs/ARCHITECTURE.md has a row for each.
type Use uint8

// The uses of a budget.
const (
	// Bodies are arriving bodies, until they are stored or refused.
	Bodies Use = iota
	// Answers are puts without an answer, and answers that the client has not read.
	Answers
	// Deliveries are messages that wait for a client, or are being written to it.
	Deliveries
	// Compressors is the memory of the compressors of connections that write compressed output.
	Compressors
	// Replies are the bodies of answers to HTTP requests.
	Replies
	uses
)

// String returns the value of the label.
func (u Use) String() string {
	return [uses]string{"bodies", "answers", "deliveries", "compressors", "replies"}[u]
}

// Uses lists all uses.
func Uses() []Use {
	all := make([]Use, uses)
	for u := range uses {
		all[u] = u
	}
	return all
}
