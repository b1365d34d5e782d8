package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

var errTLSRequired = errors.New("must be true, false or tcp-https")

// set parses text, checks the limits, and stores the value. A list is replaced by the elements between commas.
func (s setting) set(text string) error {
	if s.isList() {
		s.value.SetZero()
		return s.add(text)
	}
	v, err := parse(s.value.Type(), text)
	if err != nil {
		return err
	}
	if s.oneof != nil {
		v.SetString(strings.ToLower(v.String()))
	}
	if err := s.check(v); err != nil {
		return err
	}
	s.value.Set(v)
	return nil
}

func (s setting) add(text string) error {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		v, err := parse(s.value.Type().Elem(), item)
		if err != nil {
			return err
		}
		s.value.Set(reflect.Append(s.value, v))
	}
	return nil
}

func parse(t reflect.Type, text string) (reflect.Value, error) {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		if _, number := strconv.ParseFloat(text, 64); err != nil && number == nil {
			return reflect.ValueOf(d), fmt.Errorf("must be a duration such as 250ms or 1m30s; %s has no unit", text)
		}
		return reflect.ValueOf(d), plain(err, "a duration such as 250ms or 1m30s")
	case t == reflect.TypeFor[TLSRequired]():
		r, err := parseTLSRequired(text)
		return reflect.ValueOf(r), err
	}
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		v.SetBool(b)
		return v, plain(err, "true or false")
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(text, 0, 64)
		v.SetInt(n)
		return v, plain(err, "a whole number")
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		v.SetFloat(f)
		return v, plain(err, "a number")
	}
	v.SetString(text)
	return v, nil
}

// plain replaces strconv's wording, which names Go functions.
func plain(err error, want string) error {
	if err == nil {
		return nil
	}
	return errors.New("must be " + want)
}

func parseTLSRequired(text string) (TLSRequired, error) {
	if strings.EqualFold(text, string(TLSRequiredExceptHTTP)) {
		return TLSRequiredExceptHTTP, nil
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		return "", errTLSRequired
	}
	return TLSRequired(strconv.FormatBool(b)), nil
}

func (s setting) check(v reflect.Value) error {
	if s.oneof != nil && !slices.Contains(s.oneof, v.String()) {
		return fmt.Errorf("must be one of %s", strings.Join(nonEmpty(s.oneof), ", "))
	}
	for _, limit := range []struct {
		text, word string
		sign       int64
	}{{s.min, "at least", 1}, {s.max, "at most", -1}} {
		if limit.text == "" {
			continue
		}
		bound, err := parse(v.Type(), limit.text)
		if err != nil {
			panic("config: limit of --" + s.flag + ": " + err.Error()) // a test sets all limits
		}
		if limit.sign*v.Int() < limit.sign*bound.Int() {
			return fmt.Errorf("must be %s %s", limit.word, limit.text)
		}
	}
	return nil
}

func nonEmpty(in []string) []string {
	return slices.DeleteFunc(slices.Clone(in), func(s string) bool { return s == "" })
}
