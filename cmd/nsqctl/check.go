package main

import (
	"github.com/spf13/cobra"
)

func newCheck(t *target) *cobra.Command { return &cobra.Command{Use: "check TOPIC"} }
