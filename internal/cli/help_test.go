package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
)

// Guarantee: no line of the help of any command is longer than 80 columns.
func TestHelpFits80Columns(t *testing.T) {
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		var b bytes.Buffer
		c.SetOut(&b)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if n := terminal.TextWidth(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s --help: %d Columns: %s", c.CommandPath(), n, line)
			}
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	root := Root(&System{Env: func(string) (string, bool) { return "", false }})
	root.InitDefaultCompletionCmd()
	visit(root)
}
