package clustercmd

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
)

// build describes one process's build; the names are those of /info.
type build struct {
	Broker          string `json:"broker,omitempty"` // "" = this program
	LockstepVersion string `json:"lockstep_version"`
	Commit          string `json:"commit"`
	FeatureLevel    int    `json:"feature_level"`
	Version         string `json:"version"` // of NSQ
	Error           string `json:"error,omitempty"`
}

// NewVersion returns the command that prints the builds.
func NewVersion(t *cli.Target) *cobra.Command {
	var brokers bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print the build of nsqctl, and those of the brokers",
		Long: `version prints the build of nsqctl: the version of Lockstep, the commit, the
feature level (the newest formats of brokers that it supports) and the release of
NSQ whose protocol it implements. With --brokers it prints the build of every
running broker too: during an upgrade they differ.`,
		Example: `  nsqctl version
  nsqctl version --brokers`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := api.ReadBuild()
			builds := []build{{LockstepVersion: b.Version, Commit: b.Commit, FeatureLevel: metadata.Level, Version: api.Version}}
			if brokers {
				_, theirs, err := askBuilds(cmd, t)
				if err != nil {
					return err
				}
				builds = append(builds, theirs...)
			}
			return cli.Print(cmd, t, builds, func(w io.Writer) { printBuilds(w, builds[1:]) })
		},
	}
	cmd.Flags().BoolVar(&brokers, "brokers", false, "also print the build of every running broker")
	return cmd
}

// askBuilds queries every running broker. A broker that does not answer is listed with the
// reason.
func askBuilds(cmd *cobra.Command, t *cli.Target) (v api.ClusterView, out []build, err error) {
	if v, err = t.Cluster(cmd.Context()); err != nil {
		return v, nil, err
	}
	for _, b := range v.Brokers {
		if !b.Alive {
			continue
		}
		x := build{}
		if err := t.Get(cmd.Context(), t.Address(b), "/info", nil, &x); err != nil {
			x.Error = err.Error()
		}
		x.Broker = string(b.Name)
		out = append(out, x)
	}
	return v, out, nil
}

func printBuilds(w io.Writer, brokers []build) {
	fmt.Fprintln(w, "nsqctl:", cli.VersionLine())
	for _, b := range brokers {
		switch {
		case b.Error != "":
			fmt.Fprintf(w, "%s: %s\n", b.Broker, b.Error)
		case b.LockstepVersion == "":
			fmt.Fprintf(w, "%s: a build without version, speaks NSQ %s\n", b.Broker, b.Version)
		default:
			fmt.Fprintf(w, "%s: lockstep %s (commit %s, feature level %d), speaks NSQ %s\n", b.Broker, b.LockstepVersion, b.Commit, b.FeatureLevel, b.Version)
		}
	}
}
