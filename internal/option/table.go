package option

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Row describes one option of T, which is Topic or Policy.
type Row[T any] struct {
	Name     string // name of the HTTP argument; Flag returns the spelling of the flag
	Kind     Kind
	Label    string // of the console's field; "": the console has none
	Help     string // help text of the HTTP argument and of the flag
	Min, Max int64  // bounds of a number that is not 0; 0: unbounded
	Zero     string // meaning of 0
	Default  int64  // the value that views show for 0
	Choices  []string
	Grace    string // the reason why the option requires a --delete-grace; "": it does not

	field func(*T) any // pointer to the field: *int64, *uint16, *string or *Backoff
}

// Kind is the form of an option's value.
type Kind int

// The kinds of options.
const (
	Duration    Kind = iota // in ms; written as 24h
	Bytes                   // a number of bytes
	MessageRate             // messages a second
	ByteRate                // bytes a second
	Count                   // a number up to 65535
	Choice                  // one of the row's choices; the first is the default
	Text
	Delays // a Backoff
)

// maxRate bounds a publish rate, in messages or bytes a second.
const maxRate = 1 << 40

// Flag returns the name of the option as a flag of nsqctl.
func (r *Row[T]) Flag() string { return strings.ReplaceAll(r.Name, "_", "-") }

// Show returns the option's value in readable form.
func (r *Row[T]) Show(t T) string {
	switch field := r.field(&t).(type) {
	case *int64:
		return r.Kind.show(*field)
	default:
		return fmt.Sprint(reflect.ValueOf(field).Elem())
	}
}

// Parse reads a number of this kind. The error begins with "must be".
func (k Kind) Parse(text string) (int64, error) {
	if k == Duration {
		return parseDuration(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	valid := err == nil && n >= 0
	switch {
	case k == Bytes && !valid:
		return 0, errors.New("must be a number of bytes")
	case k == MessageRate && (!valid || n > maxRate):
		return 0, fmt.Errorf("must be a number of messages a second, 0 (no limit) to %d", int64(maxRate))
	case k == ByteRate && (!valid || n > maxRate):
		return 0, fmt.Errorf("must be a number of bytes a second, 0 (no limit) to %d", int64(maxRate))
	}
	return n, nil
}

func parseDuration(text string) (int64, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errors.New("must be a duration such as 24h")
	}
	if d > 0 && d < time.Millisecond { // it would become 0, which often means "no limit"
		return 0, errors.New("must be at least 1ms, or 0")
	}
	return d.Milliseconds(), nil
}

func (k Kind) show(n int64) string {
	if k == Duration {
		return (time.Duration(n) * time.Millisecond).String()
	}
	return strconv.FormatInt(n, 10)
}

// set reads a value into the option's field. The error begins with "must be".
func (r *Row[T]) set(t *T, value string) (err error) {
	switch field := r.field(t).(type) {
	case *Backoff:
		*field, err = parseBackoff(value)
	case *uint16: // "" is 0
		n, err := strconv.ParseUint("0"+value, 10, 16)
		if err != nil {
			return errors.New("must be 0 to 65535")
		}
		*field = uint16(n)
	case *string:
		*field, err = r.choose(value)
	case *int64:
		*field, err = r.number(value)
	}
	return err
}

// choose checks a text. The default of a Choice is stored as "".
func (r *Row[T]) choose(value string) (string, error) {
	switch {
	case r.Kind == Text, slices.Contains(r.Choices[1:], value):
		return value, nil
	case value == r.Choices[0]:
		return "", nil
	}
	return "", fmt.Errorf("must be %s", strings.Join(r.Choices, " or "))
}

func (r *Row[T]) number(value string) (int64, error) {
	n, err := r.Kind.Parse(value)
	switch {
	case err != nil:
		return 0, err
	case n != 0 && r.Max != 0 && (n < r.Min || n > r.Max):
		return 0, fmt.Errorf("must be %s to %s, or 0 (%s)", r.Kind.show(r.Min), r.Kind.show(r.Max), r.Zero)
	case n != 0 && n < r.Min:
		return 0, fmt.Errorf("must be %s or more, or 0 (%s)", r.Kind.show(r.Min), r.Zero)
	}
	return n, nil
}

// options is a struct of options that is described by a table.
type options[T any] interface {
	comparable
	rows() []Row[T]
}

// Change holds new values for some options. The zero value changes nothing. Changes can be compared with ==.
type Change[T options[T]] struct {
	Values T      // zero where no value is given
	given  uint64 // bit i: row i has a new value, perhaps 0
}

// Read reads the new value of an option. The error begins with "must be".
func (c *Change[T]) Read(r *Row[T], value string) error {
	if err := r.set(&c.Values, value); err != nil {
		return err
	}
	for i, x := range c.Values.rows() {
		if x.Name == r.Name {
			c.given |= 1 << i
		}
	}
	return nil
}

// Has reports whether the change has a new value for the option of this name.
func (c Change[T]) Has(name string) bool {
	for i, r := range c.Values.rows() {
		if r.Name == name {
			return c.given&(1<<i) != 0
		}
	}
	return false
}

// Apply gives the options of t the new values.
func (c Change[T]) Apply(t *T) {
	for i, r := range c.Values.rows() {
		if c.given&(1<<i) != 0 {
			reflect.ValueOf(r.field(t)).Elem().Set(reflect.ValueOf(r.field(&c.Values)).Elem())
		}
	}
}
