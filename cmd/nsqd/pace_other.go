//go:build !unix

package main

import "github.com/sirupsen/logrus"

// pace does nothing where a process cannot start itself again.
func pace(logrus.FieldLogger) {}
