// Command man writes the manual pages of keygate and the completions for shells into a directory:
//
//	man DIRECTORY
//
// The pages have the date of SOURCE_DATE_EPOCH, in seconds since 1970, and the version KEYGATE_VERSION.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/keygate/keygate/internal/cli"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: man DIRECTORY")
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w: set it to seconds since 1970", err)
	}
	date := time.Unix(seconds, 0).UTC()
	// The pages must not depend on the machine: no environment, no files of a user.
	root := cli.Root(&cli.System{Out: io.Discard, Err: io.Discard, Env: func(string) (string, bool) { return "", false }})
	plain(root)

	pages := filepath.Join(args[0], "man1")
	if err := os.MkdirAll(pages, 0o750); err != nil { //nolint:gosec // the argument says where to write
		return err
	}
	if err := doc.GenManTree(root, &doc.GenManHeader{
		Title: "KEYGATE", Section: "1", Date: &date, Source: "Keygate " + os.Getenv("KEYGATE_VERSION"), Manual: "Keygate Manual",
	}, pages); err != nil {
		return err
	}

	completions := filepath.Join(args[0], "completions")
	if err := os.MkdirAll(completions, 0o750); err != nil { //nolint:gosec // as above
		return err
	}
	return errors.Join(
		root.GenBashCompletionFileV2(filepath.Join(completions, "keygate.bash"), true),
		root.GenZshCompletionFile(filepath.Join(completions, "_keygate")),
		root.GenFishCompletionFile(filepath.Join(completions, "keygate.fish"), true),
		root.GenPowerShellCompletionFileWithDesc(filepath.Join(completions, "keygate.ps1")),
	)
}

// plain leaves out the line that says when and by what a page was generated.
func plain(c *cobra.Command) {
	c.DisableAutoGenTag = true
	for _, sub := range c.Commands() {
		plain(sub)
	}
}
