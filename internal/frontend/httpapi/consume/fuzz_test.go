package consume

import "testing"

// FuzzParseReceipt: a text that is read as a receipt is the only text of it.
func FuzzParseReceipt(f *testing.F) {
	for _, seed := range []string{"", "0123456789abcdef-1-1-1", "0123456789abcdef-ffff-ffffffffffffffff-ffffffffffffffff", "----", "0123456789abcdef-01-1-1", "0123456789abcdef-1-1-1-1", "0123456789ab-def-1-1-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseReceipt(text)
		if err == nil && r.String() != text {
			t.Fatalf("%q is read as %q", text, r)
		}
	})
}
