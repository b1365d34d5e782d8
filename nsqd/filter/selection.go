package filter

// HeaderOnlyChannel is the header of a message for one channel alone. A dead letter that is
// published again to its old topic carries it, so that only the channel on which the message died
// receives it.
const HeaderOnlyChannel = "##only_channel"

var onlyChannel = NameOf(HeaderOnlyChannel)

// Selection decides which messages are for a channel. It is the only place that decides: every message
// that a channel reads, by whichever road, goes through it. Equal selections decide equally.
type Selection struct {
	Channel string
	Filter  *Filter // nil: none
}

// Accepts reports whether a message with this header, a JSON object or nothing, is for the channel.
func (s Selection) Accepts(header []byte) bool {
	if only, ok := onlyChannel.Value(header); ok && string(only) != s.Channel {
		return false
	}
	return s.Filter == nil || s.Filter.Match(header)
}
