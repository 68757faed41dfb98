package cli

import (
	"cmp"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
)

// printHelp prints the help of a command in lines of at most 80 columns.
func printHelp(c *cobra.Command, _ []string) {
	text := strings.TrimSpace(cmp.Or(c.Long, c.Short))
	// A failed write to standard output or error cannot be reported.
	_, _ = io.WriteString(c.OutOrStdout(), terminal.Wrap(terminal.Reflow(text)+"\n\n"+c.UsageString()))
}
