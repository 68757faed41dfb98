package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/server"
)

// versionRecord is the output of version.
type versionRecord struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"` // of the repository; "" if the binary was built without it
	Date    string `json:"date,omitempty"`   // of the commit
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	SQLite  string `json:"sqlite"`
}

func versionOf(a *app) versionRecord {
	return versionRecord{Version: a.version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, SQLite: server.SQLiteVersion}
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version, the commit that it was built from, and the versions of Go and SQLite", Args: noArgs, RunE: func(*cobra.Command, []string) error {
		v := versionOf(a)
		v.Commit, v.Date = releaseOf, releaseDate
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, s := range info.Settings {
				switch s.Key {
				case "vcs.revision":
					v.Commit = s.Value
				case "vcs.time":
					v.Date = s.Value
				}
			}
		}
		if !a.ForPeople() {
			return a.PrintData(v)
		}
		if _, err := fmt.Fprintln(a.Out, v); err != nil {
			return err
		}
		if v.Commit != "" {
			if _, err := fmt.Fprintf(a.Out, "commit %s of %s\n", v.Commit, v.Date); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintln(a.Out, "SQLite", v.SQLite)
		return err
	}}
}

// String returns the line that --version prints, and version first.
func (v versionRecord) String() string {
	return fmt.Sprintf("keygate %s %s %s/%s", v.Version, v.Go, v.OS, v.Arch)
}
