package limits

// Use says what memory is held for. docs/ARCHITECTURE.md has a row for each.
type Use uint8

// The uses of a budget.
const (
	// Bodies are bodies that arrive, until they are stored or refused.
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
