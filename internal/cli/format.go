package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/internal/cli/terminal"
)

// identity names the fields of a command's records that -o id and -o name print; "" if the
// records have no such field.
type identity struct{ id, name string }

// identityOf returns the identity of the records of the command with this path. A command that is
// not listed has the identity of its group.
func identityOf(path string) identity {
	switch path {
	case "keygate account", "keygate accounts":
		return identity{"account_id", "name"}
	case "keygate keys", "keygate account key":
		return identity{"key_id", "name"}
	case "keygate gateways":
		return identity{"gateway_id", "name"}
	case "keygate upstreams", "keygate targets":
		return identity{"name", "name"} // by which commands find an upstream
	case "keygate targets list":
		return identity{"url", ""} // by which commands find a target
	case "keygate canary":
		return identity{"canary_id", ""}
	case "keygate plans":
		return identity{"plan_id", "name"}
	case "keygate owners":
		return identity{"owner_id", "external_id"} // by which commands find an owner
	case "keygate grants":
		return identity{"grant_id", ""}
	case "keygate issuers":
		return identity{"issuer_id", "name"}
	case "keygate issuers deny", "keygate issuers denials", "keygate issuers lift":
		return identity{"denial_id", ""}
	case "keygate usage list":
		return identity{"usage_id", ""}
	case "keygate routes":
		return identity{"route_id", ""}
	case "keygate spec revisions":
		return identity{"revision_id", ""}
	case "keygate webhooks":
		return identity{"webhook_id", ""}
	case "keygate deliveries", "keygate webhooks test":
		return identity{"delivery_id", ""}
	case "keygate events", "keygate webhooks listen":
		return identity{"id", ""}
	case "keygate audit-log", "keygate explain":
		return identity{"request_id", ""}
	case "keygate context list":
		return identity{"", "name"}
	case "", "keygate audit-log export", "keygate audit-log head", "keygate audit-log verify", "keygate keys verify",
		"keygate webhooks recover", "keygate webhooks verify", "keygate doctor":
		return identity{}
	default:
		return identityOf(path[:max(0, strings.LastIndexByte(path, ' '))])
	}
}

// checkOutput checks the flags that control the output of c.
func (a *app) checkOutput(c *cobra.Command) error {
	switch a.Colour {
	case terminal.ColourAuto, terminal.ColourAlways, terminal.ColourNever:
	default:
		return usagef("--color must be auto, always or never, not %q", a.Colour)
	}
	if err := a.readFilter(c); err != nil {
		return err
	}
	has := identityOf(c.CommandPath())
	switch a.Format {
	case terminal.FormatTable, terminal.FormatWide, terminal.FormatJSON, terminal.FormatYAML:
		return nil
	case terminal.FormatID:
		a.Printed = has.id
		if has.id == "" {
			return usagef("the output of %s has no identifiers: -o id cannot be used with it", c.CommandPath())
		}
	case terminal.FormatName:
		a.Printed = has.name
		if has.name == "" {
			return usagef("the output of %s has no names: -o name cannot be used with it", c.CommandPath())
		}
	case formatMarkdown:
		if !hasMarkdown(c.CommandPath()) {
			return usagef("-o markdown is for keygate config diff and keygate spec push --dry-run: use table, wide, json, yaml, id or name")
		}
	default:
		return usagef("-o must be table, wide, json, yaml, id or name, not %q", a.Format)
	}
	return nil
}

// readFilter compiles the expression of --jq, if it was given.
func (a *app) readFilter(c *cobra.Command) error {
	switch {
	case !c.Flags().Changed("jq"):
		return nil
	case c.Flags().Changed("output") && a.Format != terminal.FormatJSON:
		return usagef("--jq filters JSON: it cannot be used with -o %s", a.Format)
	case !printsRecords(c.CommandPath()):
		return usagef("the output of %s is not JSON: --jq cannot be used with it", c.CommandPath())
	}
	a.Format = terminal.FormatJSON
	code, err := terminal.CompileFilter(a.jq)
	if err != nil {
		return usagef("%s", err)
	}
	a.Filter = code
	return nil
}

// printsRecords reports whether -o applies to the command with this path.
func printsRecords(path string) bool {
	switch path {
	case "keygate serve", "keygate demo", "keygate login", "keygate context use", "keygate context delete", "keygate config validate",
		"keygate config export", "keygate spec get", "keygate audit-log export", "keygate usage export":
		return false
	default:
		return !strings.HasPrefix(path, "keygate completion")
	}
}

// noneMatch returns the message for an empty list. If c was given flags that select records, it
// says that nothing matches; otherwise it says that there is nothing, and what to do next. Flags in
// except do not select.
func noneMatch(c *cobra.Command, what, next string, except ...string) string {
	selects := false
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		selects = selects || f.Changed && f.Name != "limit" && !slices.Contains(except, f.Name)
	})
	if selects {
		return "No " + what + " match."
	}
	return strings.TrimSpace("No " + what + ". " + next)
}

// filled returns the fields that have a value.
func filled(fields ...terminal.Field) []terminal.Field {
	return slices.DeleteFunc(fields, func(f terminal.Field) bool { return f[1] == "" })
}

// str returns *p as a string, or "" if p is nil.
func str[T ~string](p *T) string {
	if p == nil {
		return ""
	}
	return string(*p)
}
