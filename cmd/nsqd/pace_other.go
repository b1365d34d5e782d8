//go:build !unix

package main

import "github.com/sirupsen/logrus"

// pace does nothing: a process cannot restart itself on this system.
func pace(logrus.FieldLogger) {}
