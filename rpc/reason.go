package rpc

import (
	"errors"
	"net"
	"strings"

	"github.com/sirupsen/logrus"
)

// notYet ends the refusal of a broker that the watch of the metadata has not shown yet.
const notYet = "is not in the address book yet"

// levelOf is the level of a line about a connection that failed. While brokers start, one reaches
// another before the metadata has shown it there: that is no fault.
func levelOf(err error) logrus.Level {
	if strings.Contains(err.Error(), notYet) {
		return logrus.DebugLevel
	}
	return logrus.WarnLevel
}

// reason is an error's text without this broker's own address, whose port differs with
// each attempt although the reason is the same.
func reason(err error) string {
	var op *net.OpError
	if !errors.As(err, &op) || op.Source == nil {
		return err.Error()
	}
	same := *op
	same.Source = nil
	return same.Error()
}
