package lint_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// questionSubject matches the beginning of a sentence with "Who" or "What" as its subject.
var questionSubject = regexp.MustCompile(`^(Who|Whoever|Whose|What|Whatever)\b`)

// TestSentencesNameTheirSubject: no sentence of a comment begins with "Who" or "What" as its
// subject, because its reader has to search for the thing that is meant. A question, which
// ends with a question mark, may.
func TestSentencesNameTheirSubject(t *testing.T) {
	found := map[string][]string{}
	for _, s := range sources(t) {
		for _, group := range s.file.Comments {
			for _, sentence := range sentences(group.Text()) {
				if questionSubject.MatchString(sentence) && !strings.HasSuffix(sentence, "?") {
					found[s.dir()] = append(found[s.dir()], s.at(group)+": "+sentence)
				}
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		t.Errorf("%s: %d sentences begin with Who or What; begin with the thing that is meant (the leader, the caller):\n%s",
			dir, len(found[dir]), strings.Join(found[dir], "\n"))
	}
}

// sentenceEnd is the end of a sentence within a paragraph. A colon counts: the text behind it
// is a sentence of its own if it begins with a capital letter.
var sentenceEnd = regexp.MustCompile(`[.:!?]["”)]?\s+`)

// sentences splits the text of a comment. A line that is indented, such as a list item,
// begins a sentence.
func sentences(text string) (out []string) {
	for _, paragraph := range regexp.MustCompile(`\n\s*\n|\n\s+(?:\d+\.|-)\s|^\s+(?:\d+\.|-)\s`).Split(text, -1) {
		paragraph = strings.Join(strings.Fields(paragraph), " ")
		from := 0
		for _, end := range sentenceEnd.FindAllStringIndex(paragraph, -1) {
			out = append(out, strings.TrimSpace(paragraph[from:end[1]]))
			from = end[1]
		}
		out = append(out, paragraph[from:])
	}
	return out
}

func TestSentencesAreFound(t *testing.T) {
	text := "Package x does this. Who asks waits: What comes later is not\nseen. Who knows?\n\n  1. What is written\n     stays.\n  2. The rest (Who) goes.\n"
	want := []string{"Who asks waits:", "What comes later is not seen.", "What is written stays."}
	var got []string
	for _, s := range sentences(text) {
		if questionSubject.MatchString(s) && !strings.HasSuffix(s, "?") {
			got = append(got, s)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}
