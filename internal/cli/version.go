package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionRecord is the output of version.
type versionRecord struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func versionOf(a *app) versionRecord {
	return versionRecord{Version: a.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: noArgs, RunE: func(*cobra.Command, []string) error {
		v := versionOf(a)
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, s := range info.Settings {
				if s.Key == "vcs.revision" {
					v.Commit = s.Value
				}
			}
		}
		if !a.forPeople() {
			return a.printData(v)
		}
		_, err := fmt.Fprintln(a.Out, v)
		return err
	}}
}

// String returns the line that version and --version print.
func (v versionRecord) String() string {
	return fmt.Sprintf("keygate %s %s %s/%s", v.Version, v.Go, v.OS, v.Arch)
}
