package clustercmd

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

func newUpgrade(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{Use: "upgrade", Short: "where an upgrade stands"}
	cmd.AddCommand(&cobra.Command{
		Use:   "status",
		Short: "the build and feature level of every broker, and the next step",
		Long: `status prints the build of every broker and the feature level that it has, the level that the cluster
uses, the brokers that block it, and the next step of an upgrade.

Exit codes: 0 all brokers run one build and the cluster uses its feature level; 1 an upgrade is under way, or a broker
does not run; 3 no broker answers.`,
		Example: `  nsqctl cluster upgrade status
  nsqctl cluster upgrade status -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, builds, err := askBuilds(cmd, t)
			if err != nil {
				return err
			}
			u := judgeUpgrade(v, builds)
			err = cli.Print(cmd, t, u, func(w io.Writer) { printUpgrade(w, u) })
			return cli.EndUnless(u.Done, cli.ExitFailed, err)
		},
	})
	return cmd
}

type upgrade struct {
	Level   int             `json:"feature_level"`        // that the cluster uses
	Reaches int             `json:"feature_level_of_all"` // the level that all brokers support, running or not
	Newest  int             `json:"feature_level_newest"` // of any broker
	Done    bool            `json:"done"`
	Brokers []brokerUpgrade `json:"brokers"`
	Waits   []string        `json:"waits"` // the reasons why the upgrade is not done
	Next    string          `json:"next"`
}

type brokerUpgrade struct {
	Broker       string `json:"broker"`
	Alive        bool   `json:"alive"`
	Version      string `json:"lockstep_version,omitempty"` // missing: unknown, it does not run or does not answer
	Commit       string `json:"commit,omitempty"`
	FeatureLevel int    `json:"feature_level"`
	Error        string `json:"error,omitempty"`
}

func (b brokerUpgrade) describe() string {
	if b.Version == "" && b.Commit == "" {
		return "unknown"
	}
	return b.Version + " (" + b.Commit + ")"
}

// judgeUpgrade compares the builds. Of two builds the one with the higher feature level is the newer. The level does
// not order builds of the same level: among those, the most frequent build counts as the target.
func judgeUpgrade(v api.ClusterView, builds []build) upgrade {
	u := upgrade{Level: v.Level, Waits: []string{}}
	for i, b := range v.Brokers {
		x := brokerUpgrade{Broker: string(b.Name), Alive: b.Alive, FeatureLevel: b.Level}
		if at := slices.IndexFunc(builds, func(o build) bool { return o.Broker == x.Broker }); at >= 0 {
			x.Version, x.Commit, x.Error = builds[at].LockstepVersion, builds[at].Commit, builds[at].Error
		}
		u.Brokers = append(u.Brokers, x)
		u.Newest = max(u.Newest, b.Level)
		if u.Reaches = min(u.Reaches, b.Level); i == 0 {
			u.Reaches = b.Level
		}
	}
	old := u.outdated()
	for _, b := range u.Brokers {
		switch {
		case !b.Alive && b.FeatureLevel < u.Newest:
			u.wait("%s does not run, and its last build has feature level %d: the level stays at %d", b.Broker, b.FeatureLevel, u.Reaches)
		case !b.Alive:
			u.wait("%s does not run", b.Broker)
		case b.Error != "":
			u.wait("the build of %s is unknown: %s", b.Broker, b.Error)
		case b.FeatureLevel < u.Newest:
			u.wait("%s runs %s, whose feature level is %d: the newest is %d", b.Broker, b.describe(), b.FeatureLevel, u.Newest)
		case slices.Contains(old, b.Broker):
			u.wait("%s runs %s, another build than most", b.Broker, b.describe())
		}
	}
	if u.Level < u.Reaches {
		u.wait("the cluster uses feature level %d, all brokers have %d", u.Level, u.Reaches)
	}
	u.Done = len(u.Waits) == 0
	u.Next = u.next(v, old)
	return u
}

func (u *upgrade) wait(format string, args ...any) {
	u.Waits = append(u.Waits, fmt.Sprintf(format, args...))
}

// outdated lists the running brokers that still have to be upgraded to the build of the others.
func (u *upgrade) outdated() (old []string) {
	count := map[string]int{}
	for _, b := range u.Brokers {
		if b.Alive && b.FeatureLevel == u.Newest && b.describe() != "unknown" {
			count[b.describe()]++
		}
	}
	aim := ""
	for name, n := range count {
		if n > count[aim] || n == count[aim] && name > aim {
			aim = name
		}
	}
	for _, b := range u.Brokers {
		if b.Alive && b.Error == "" && (b.FeatureLevel < u.Newest || aim != "" && b.describe() != aim) {
			old = append(old, b.Broker)
		}
	}
	return old
}

// next is the step that the operator should take now.
func (u *upgrade) next(v api.ClusterView, old []string) string {
	if u.Done {
		return "nothing: all brokers run one build"
	}
	if i := slices.IndexFunc(u.Brokers, func(b brokerUpgrade) bool { return !b.Alive && b.FeatureLevel < u.Newest }); i >= 0 {
		return fmt.Sprintf("start %[1]s with the new build; if it is gone permanently: nsqctl broker decommission %[1]s", u.Brokers[i].Broker)
	}
	if report := health.Assess(v, nil, nil); report.State > health.Healthy {
		a := report.Alarms[0]
		return fmt.Sprintf("wait until the cluster is healthy (%s): %s", a.Text, a.Do)
	}
	if len(old) > 0 {
		// The controller goes last: restarting it moves its work to another broker.
		if i := slices.Index(old, string(v.Controller)); i >= 0 {
			old = append(slices.Delete(old, i, i+1), string(v.Controller))
		}
		for _, name := range old {
			if why, err := health.SafeToStop(v, ident.Node(name)); err == nil && len(why) == 0 {
				return fmt.Sprintf("stop %s, start it with the new build, and ask again", name)
			}
		}
		return fmt.Sprintf("wait: no broker may be stopped now (nsqctl cluster safe-to-stop %s)", old[0])
	}
	if u.Level < u.Reaches {
		return "wait some seconds: the controller raises the feature level by itself; from then on older builds are refused"
	}
	return "ask the brokers whose build is unknown: nsqctl version --brokers"
}

func printUpgrade(w io.Writer, u upgrade) {
	fmt.Fprintf(w, "the cluster uses feature level %d; all brokers have %d, the newest has %d\n\n", u.Level, u.Reaches, u.Newest)
	fmt.Fprintln(w, "BROKER\tALIVE\tBUILD\tLEVEL")
	for _, b := range u.Brokers {
		fmt.Fprintf(w, "%s\t%t\t%s\t%d\n", b.Broker, b.Alive, b.describe(), b.FeatureLevel)
	}
	if len(u.Waits) > 0 {
		fmt.Fprintf(w, "\nnot done:\n  %s\n", strings.Join(u.Waits, "\n  "))
	}
	fmt.Fprintf(w, "\nnext: %s\n", u.Next)
}

// build describes one process's build; the names are as in /info.
type build struct {
	Broker          string `json:"broker,omitempty"` // "" = this program
	LockstepVersion string `json:"lockstep_version"`
	Commit          string `json:"commit"`
	FeatureLevel    int    `json:"feature_level"`
	Version         string `json:"version"` // of NSQ
	Error           string `json:"error,omitempty"`
}

func newVersion(t *cli.Target) *cobra.Command {
	var brokers bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "print the builds of nsqctl and of the brokers",
		Long: `version prints the build of nsqctl: the version of Lockstep, the commit, the feature level (the newest
formats of brokers that it supports) and the release of NSQ whose protocol it implements. With --brokers it prints the
build of every running broker too: during an upgrade they differ.`,
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

// askBuilds queries every running broker. A broker that does not answer is listed with the reason.
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
