// Package redact removes passwords in addresses from the texts that a process outputs: settings, errors, log lines and
// answers. Every text passes through it where it leaves the process, so the code that composes a text does not have to.
//
// # Invariants
//
//  1. A text without @ is returned as it is.
//  2. Neither the part of an address after the first colon of its user, nor any value of its query, is shown, even if the
//     address cannot be parsed.
package redact

import (
	"net/url"
	"regexp"
	"strings"
)

const hidden = "xxxxx"

// user is a user with a password: in a URL, or before a host without a scheme. It ends with the last @ before a blank or a
// quotation mark.
var user = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s:/@"'\x60]*):[^\s"'\x60]*@` +
	`|([^\s"'\x60=:/@,;\[\](){}]+):(?:[^\s"'\x60/]|/[^\s"'\x60/])[^\s"'\x60]*@`)

// Text removes the passwords from the addresses in a sentence.
func Text(text string) string {
	if !strings.Contains(text, "@") {
		return text
	}
	return user.ReplaceAllString(text, "$1$2:"+hidden+"@")
}

// Address removes the password, and the values of the query, from one address: a URL, or user:password@host. An address that
// cannot be parsed loses its user.
func Address(address string) string {
	scheme, rest, isURL := strings.Cut(address, "://")
	if !isURL {
		scheme, rest = "", address
	}
	u, err := url.Parse(address)
	if !isURL || err != nil || u.Host == "" || strings.Contains(u.Path+u.RawPath+u.RawQuery+u.Fragment, "@") {
		at := strings.LastIndex(rest, "@")
		if at < 0 || !isURL && (!strings.Contains(rest[:at], ":") || strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, "//")) {
			return address // it has no password, or is the path of a unix socket
		}
		if isURL {
			scheme += "://"
		}
		return scheme + "…@" + rest[at+1:]
	}
	if u.User == nil && u.RawQuery == "" {
		return address
	}
	if values := u.Query(); u.RawQuery != "" {
		for name := range values {
			values[name] = []string{hidden}
		}
		u.RawQuery = values.Encode()
	}
	return u.Redacted()
}

// Addresses applies Address to each element of a list and joins them with commas.
func Addresses(list []string) string {
	shown := make([]string, len(list))
	for i, a := range list {
		shown[i] = Address(a)
	}
	return strings.Join(shown, ",")
}
