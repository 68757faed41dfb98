package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/keygate/keygate/internal/cli/terminal"
	"github.com/keygate/keygate/internal/manual"
)

// docsRecord is a line of the list of pages.
type docsRecord struct {
	Name  string `json:"name"`
	Title string `json:"title"`
}

func newDocs(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "docs [PAGE]", Short: "Print a page of the documentation, which is in the binary, or list the pages", Args: atMost(1),
		Long: `Print a page of the documentation in the width of the terminal, or list the pages. They are
in the binary, so no network is needed. With -o json or yaml, a page is its parsed text.`,
		Example: "  keygate docs\n  keygate docs keys-and-limits | less",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, p := range manual.Read().Pages {
				names = append(names, p.Name+"\t"+p.Title)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.listPages()
			}
			page, err := findPage(args[0])
			if err != nil {
				return err
			}
			if !a.ForPeople() {
				return a.PrintData(page)
			}
			width := a.Width(a.Out)
			if width == 0 {
				width = terminal.DefaultWidth
			}
			return writePage(a.Out, page, width, a.Colours(a.Out))
		},
	}
}

// listPages prints the names and titles of all pages.
func (a *app) listPages() error {
	return terminal.PrintList(a.Console, 0, func(yield func(docsRecord, error) bool) {
		for _, p := range manual.Read().Pages {
			if !yield(docsRecord{p.Name, p.Title}, nil) {
				return
			}
		}
	}, terminal.Listing[docsRecord]{
		Columns: []terminal.Column{{Name: "PAGE"}, {Name: "TITLE"}},
		Row:     func(r *docsRecord) []string { return []string{r.Name, r.Title} },
		Next:    "Print a page: keygate docs PAGE",
	})
}

// findPage returns the page with a name, whatever its case, with or without .md and its directory. If there is none, the
// error names the page that was probably meant.
func findPage(name string) (*manual.Page, error) {
	asked := strings.TrimSuffix(strings.TrimPrefix(strings.ToLower(name), "docs/"), ".md")
	m := manual.Read()
	if page := m.Page(asked); page != nil {
		return page, nil
	}
	names := make([]string, len(m.Pages))
	for i, p := range m.Pages {
		names[i] = p.Name
	}
	near := nearest(asked, names, func(known string) bool { return asked != "" && strings.Contains(known, asked) })
	if near != "" {
		return nil, &notFoundError{"there is no page " + terminal.Clean(name) + ": did you mean " + near + "? keygate docs lists all"}
	}
	return nil, &notFoundError{"there is no page " + terminal.Clean(name) + ": keygate docs lists all"}
}
