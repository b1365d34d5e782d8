package transfer

import (
	"cmp"
	"slices"
)

// segment maps Count messages: Source, Source+1, … of the source are Target, Target+1, … of the target.
type segment struct {
	Source uint64 `json:"source"`
	Target uint64 `json:"target"`
	Count  uint64 `json:"count"`

	times []int64 // of the originals, one a message (while they are compared); nil: not kept
}

// segments are sorted by Target and do not overlap there. A message of the source may be in several.
type segments []segment

// add maps a position of the source to one of the target, unless that one is already mapped.
func (s *segments) add(source, target uint64) {
	if n := len(*s); n > 0 {
		last := &(*s)[n-1]
		switch {
		case target == last.Target+last.Count && source == last.Source+last.Count:
			last.Count++
			return
		case target < last.Target+last.Count:
			if i, found := s.at(target); !found {
				*s = slices.Insert(*s, i, segment{Source: source, Target: target, Count: 1})
			}
			return
		}
	}
	*s = append(*s, segment{Source: source, Target: target, Count: 1})
}

// addTimed is add with the time of the original.
func (s *segments) addTimed(source, target uint64, ns int64) {
	s.add(source, target)
	if i, found := s.at(target); found && uint64(len((*s)[i].times)) == target-(*s)[i].Target {
		(*s)[i].times = append((*s)[i].times, ns)
	}
}

// match finds the copy of the message with this time; without times, of any message with the sequence.
func (s segments) match(source uint64, ns int64) (target uint64, ok bool) {
	for i := range s {
		if source < s[i].Source || source-s[i].Source >= s[i].Count {
			continue
		}
		if n := source - s[i].Source; s[i].times == nil || s[i].times[n] == ns {
			return s[i].Target + n, true
		}
	}
	return 0, false
}

// at finds the segment with a message of the target, or the place where it would be.
func (s segments) at(target uint64) (int, bool) {
	i, found := slices.BinarySearchFunc(s, target, func(x segment, t uint64) int { return cmp.Compare(x.Target, t) })
	if !found && i > 0 && target < s[i-1].Target+s[i-1].Count {
		return i - 1, true
	}
	return i, found
}

// below removes the segments that end at or below a position of the target.
func (s *segments) below(target uint64) {
	*s = slices.DeleteFunc(*s, func(x segment) bool { return x.Target+x.Count <= target })
}

// place is where the newest copy of a message of the source is; false without a copy.
func (s segments) place(source uint64) (target uint64, ok bool) {
	for i := len(s) - 1; i >= 0; i-- {
		if source >= s[i].Source && source-s[i].Source < s[i].Count {
			return s[i].Target + source - s[i].Source, true
		}
	}
	return 0, false
}

// cut removes the copies of messages at and above a sequence of the source.
func (s *segments) cut(source uint64) {
	kept := (*s)[:0]
	for _, x := range *s {
		if x.Source < source {
			x.Count = min(x.Count, source-x.Source)
			kept = append(kept, x)
		}
	}
	*s = kept
}

// lowest is the first message of the source that has a copy.
func (s segments) lowest() (source uint64, ok bool) {
	for i := range s {
		if !ok || s[i].Source < source {
			source, ok = s[i].Source, true
		}
	}
	return source, ok
}

// first is the first message of the target whose source is at or above a sequence; false without one.
func (s segments) first(source uint64) (uint64, bool) {
	for i := range s {
		if end := s[i].Source + s[i].Count; end > source {
			return s[i].Target + max(source, s[i].Source) - s[i].Source, true
		}
	}
	return 0, false
}
