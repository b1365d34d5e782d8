package config

// Nearest returns the name that a mistyped one probably means: at most a third of its letters differ. "" = none.
func Nearest(typed string, names []string) string {
	best, distance := "", len(typed)/3+1
	for _, name := range names {
		if d := edits(typed, name); d < distance {
			best, distance = name, d
		}
	}
	return best
}

// edits counts the letters to insert, delete or replace between two names.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// meant is the end of a sentence about an unknown name.
func meant(typed, prefix string, names []string) string {
	if name := Nearest(typed, names); name != "" {
		return "; did you mean " + prefix + name + "?"
	}
	return ""
}
