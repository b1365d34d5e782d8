package console

import (
	"math"
	"strconv"
)

const (
	// ringPoints is an hour of steps of ten seconds.
	ringPoints = 360
	// maxTopics and maxChannels bound the topics and channels with a ring.
	maxTopics   = 500
	maxChannels = 1000
)

// Points are the values of one series, oldest first. NaN means no value; in JSON it is null.
type Points []float32

// MarshalJSON writes null for a point without a value.
func (p Points) MarshalJSON() ([]byte, error) {
	b := append(make([]byte, 0, 4*len(p)+2), '[')
	for i, v := range p {
		if i > 0 {
			b = append(b, ',')
		}
		if v != v || math.IsInf(float64(v), 0) {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendFloat(b, float64(v), 'g', -1, 32)
		}
	}
	return append(b, ']'), nil
}

var noValue = float32(math.NaN())

// track is the rings of one object: for each of its series the last ringPoints values. The value of slot s is at s % ringPoints.
type track struct {
	points [][ringPoints]float32
	last   int64 // slot of the last value that is not 0: the least recent track is replaced first
}

func (t *track) set(slot int64, values []float32) {
	for i := range t.points {
		v := values[i]
		t.points[i][slot%ringPoints] = v
		if v == v && v != 0 {
			t.last = slot
		}
	}
}

func (t *track) read(series int, from, to int64) Points {
	out := make(Points, 0, to-from+1)
	for slot := from; slot <= to; slot++ {
		out = append(out, t.points[series][slot%ringPoints])
	}
	return out
}

// tracks are the rings of many objects, at most limit of them.
type tracks struct {
	limit, series int
	of            map[string]*track
}

func newTracks(limit, series int) *tracks {
	return &tracks{limit: limit, series: series, of: map[string]*track{}}
}

// get returns the track of an object. An object without one gets one only if it is active; when all are taken, it replaces the
// track that has been inactive longest, if that is more than an hour.
func (t *tracks) get(name string, slot int64, active bool) *track {
	if x := t.of[name]; x != nil || !active {
		return x
	}
	if len(t.of) >= t.limit && !t.makeRoom(slot) {
		return nil
	}
	x := &track{points: make([][ringPoints]float32, t.series)}
	for i := range x.points {
		for j := range x.points[i] {
			x.points[i][j] = noValue
		}
	}
	t.of[name] = x
	return x
}

func (t *tracks) makeRoom(slot int64) bool {
	oldest, name := slot-ringPoints, ""
	for n, x := range t.of {
		if x.last < oldest {
			oldest, name = x.last, n
		}
	}
	delete(t.of, name)
	return name != ""
}

func (t *tracks) clear(slot int64) {
	for _, x := range t.of {
		for i := range x.points {
			x.points[i][slot%ringPoints] = noValue
		}
	}
}
