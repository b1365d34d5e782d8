package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// profiles is the file of named settings for the global flags.
type profiles struct {
	Current  string                       `toml:"current,omitempty"`
	Profiles map[string]map[string]string `toml:"profiles"` // name → flag → value
}

func profilePath() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("profiles have no place: %w", err)
	}
	return filepath.Join(dir, "lockstep", "nsqctl.toml"), nil
}

// loadProfiles reads the file. If it does not exist, there are no profiles.
func loadProfiles() (profiles, error) {
	p := profiles{Profiles: map[string]map[string]string{}}
	path, err := profilePath()
	if err != nil {
		return p, nil // no home directory: no profiles
	}
	meta, err := toml.DecodeFile(path, &p)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return p, fmt.Errorf("%s: unknown key %q", path, unknown[0].String())
	}
	return p, nil
}

// save replaces the file. Only the user can read it.
func (p profiles) save() error {
	path, err := profilePath()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := toml.NewEncoder(&text).Encode(p); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// notInProfiles are the global flags that a profile cannot set: --profile itself and the secret.
var notInProfiles = []string{"profile", "auth-secret"}

func variable(flag string) string {
	return "LOCKSTEP_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// defaults sets the global flags that are not on the command line: from the environment, else from the profile.
func defaults(cmd *cobra.Command) error {
	flags, given := cmd.Root().PersistentFlags(), map[string]bool{}
	var wrong error
	flags.VisitAll(func(f *pflag.Flag) {
		given[f.Name] = f.Changed
		if text, ok := os.LookupEnv(variable(f.Name)); ok && !f.Changed && wrong == nil {
			given[f.Name] = true
			if err := flags.Set(f.Name, text); err != nil {
				wrong = Usage("$%s: %w", variable(f.Name), err)
			}
		}
	})
	if wrong != nil || cmd.HasParent() && cmd.Parent().Name() == "profile" {
		return wrong
	}
	p, err := loadProfiles()
	if err != nil {
		return err
	}
	name := cmp.Or(flags.Lookup("profile").Value.String(), p.Current)
	if name == "" {
		return nil
	}
	settings, ok := p.Profiles[name]
	if !ok {
		return fmt.Errorf("%w; nsqctl profile list shows them", NotFound("profile", name))
	}
	for _, flag := range slices.Sorted(maps.Keys(settings)) {
		if given[flag] {
			continue
		}
		if err := flags.Set(flag, settings[flag]); err != nil {
			return fmt.Errorf("profile %s: %w", name, err)
		}
	}
	return nil
}

func newProfile(t *Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "save the addresses and certificates of clusters under names",
		Long: `A profile saves global flags, such as the addresses of a cluster, under a name. --profile or
$LOCKSTEP_PROFILE chooses one for a command, "profile use" for all. A flag overrides its environment variable
(--nsqd-http-address: $LOCKSTEP_NSQD_HTTP_ADDRESS), which overrides the profile.

Profiles are in lockstep/nsqctl.toml in the user's configuration directory. They have the path of a token's file, and no
secrets.`,
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "set NAME",
		Short:   "save the global flags of this command as a profile, or change it",
		Example: `  nsqctl profile set staging --nsqd-http-address n1:4151,n2:4151 --nsqd-tcp-address n1:4150 --token-file ~/staging.token`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeProfiles(nil, func(p *profiles) error { return p.set(args[0], cmd.Root().PersistentFlags()) })
		},
	}, &cobra.Command{
		Use:     "use [NAME]",
		Short:   "use a profile by default; without a name use none",
		Example: "  nsqctl profile use staging",
		RunE: func(_ *cobra.Command, args []string) error {
			return changeProfiles(args, func(p *profiles) error {
				p.Current = strings.Join(args, "") // at most one
				return nil
			})
		},
	}, &cobra.Command{
		Use:     "list",
		Short:   "print the profiles; * marks the one in use",
		Example: "  nsqctl profile list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := loadProfiles()
			if err != nil {
				return err
			}
			return Print(cmd, t, map[string]any{"current": p.Current, "profiles": p.Profiles}, p.print)
		},
	}, &cobra.Command{
		Use:     "delete NAME",
		Short:   "remove a profile",
		Example: "  nsqctl profile delete staging",
		RunE: func(_ *cobra.Command, args []string) error {
			return changeProfiles(args, func(p *profiles) error {
				delete(p.Profiles, args[0])
				if p.Current == args[0] {
					p.Current = ""
				}
				return nil
			})
		},
	})
	return cmd
}

func (p *profiles) set(name string, flags *pflag.FlagSet) (refused error) {
	if p.Profiles[name] == nil {
		p.Profiles[name] = map[string]string{}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Changed {
			return
		}
		if slices.Contains(notInProfiles, f.Name) {
			refused = Usage("a profile does not keep --%s", f.Name)
		}
		p.Profiles[name][f.Name] = strings.Trim(f.Value.String(), "[]")
	})
	return refused
}

func (p *profiles) print(w io.Writer) {
	for _, name := range slices.Sorted(maps.Keys(p.Profiles)) {
		var line []string // as on a command line
		for _, flag := range slices.Sorted(maps.Keys(p.Profiles[name])) {
			line = append(line, "--"+flag+"="+p.Profiles[name][flag])
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", Mark(name == p.Current, "*"), name, strings.Join(line, " "))
	}
}

// changeProfiles loads the file, which must have some profiles, changes it and writes it, unless change fails.
func changeProfiles(exist []string, change func(*profiles) error) error {
	p, err := loadProfiles()
	if err != nil {
		return err
	}
	for _, name := range exist {
		if p.Profiles[name] == nil {
			return NotFound("profile", name)
		}
	}
	if err := change(&p); err != nil {
		return err
	}
	return p.save()
}
