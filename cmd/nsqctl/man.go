package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/lockstepmq/lockstep/internal/config"
)

// newMan is a hidden command for packagers.
func newMan() *cobra.Command {
	var version string
	cmd := &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "write the manual pages of nsqctl and nsqd",
		Long:   `man writes the manual pages into a directory. SOURCE_DATE_EPOCH sets their date.`,
		Hidden: true,
		Example: `  nsqctl man ./man
  man -l ./man/nsqctl.1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			date, err := sourceDate()
			if err != nil {
				return err
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			header := &doc.GenManHeader{Section: "1", Date: &date, Source: "lockstep " + version, Manual: "Lockstep"}
			if err := doc.GenManTreeFromOpts(root, doc.GenManTreeOptions{Header: header, Path: args[0], CommandSeparator: "-"}); err != nil {
				return err
			}
			return brokerPage(filepath.Join(args[0], "nsqd.8"), date, version)
		},
	}
	cmd.Flags().StringVar(&version, "product-version", "", "version at the foot of the pages")
	return cmd
}

func brokerPage(name string, date time.Time, version string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := config.Manual(f, date, version); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// sourceDate returns the time of SOURCE_DATE_EPOCH, which makes a build reproducible.
func sourceDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return time.Now(), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
