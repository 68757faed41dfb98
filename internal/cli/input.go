package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
)

// given returns a pointer to s, or nil if s is empty: then the flag was not given.
func given[T ~string](s T) *T {
	if s == "" {
		return nil
	}
	return &s
}

// noneEmpty returns a usage error if a flag was given with an empty value, for
// example by a script whose variable is not set. Without this check a key could
// silently get no limit or no expiry.
func noneEmpty(c *cobra.Command) (err error) {
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if err == nil && f.Changed && f.Value.String() == "" {
			err = emptyFlag(f.Name)
		}
	})
	return err
}

func emptyFlag(name string) error { return usagef("--%s is empty: give it a value or omit it", name) }

// badValue returns the error of a value that is not of the type of its flag.
func badValue(err *pflag.InvalidValueError) error {
	f := err.GetFlag()
	form, known := map[string]string{
		"bool": "true or false", "duration": "a duration such as 30s or 5m", "float64": "a number such as 1.5",
		"float64Slice": "numbers separated by commas, such as 1,5,25", "int": "a whole number", "int64": "a whole number",
	}[f.Value.Type()]
	switch {
	case !known:
		return err
	case err.GetValue() == "":
		return emptyFlag(f.Name)
	}
	return usagef("--%s must be %s, not %q", f.Name, form, err.GetValue())
}

// pairs parses the values of a flag of the form NAME=VALUE.
func pairs(flag string, values []string) (map[string]string, error) {
	m := make(map[string]string, len(values))
	for _, v := range values {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return nil, usagef("--%s %q must have the form NAME=VALUE", flag, v)
		}
		m[name] = value
	}
	return m, nil
}

// changes turns the flags that were given into changes of fields.
type changes struct{ flags *pflag.FlagSet }

func changesOf(c *cobra.Command) changes { return changes{c.Flags()} }

// text returns the change of a field to the flag's value. An empty value clears the
// field.
func (s changes) text(flag, value string) client.Change[string] {
	switch {
	case !s.flags.Changed(flag):
		return client.Change[string]{}
	case value == "":
		return client.Clear[string]()
	default:
		return client.Set(value)
	}
}

// metadata returns the change of the field to the pairs of --metadata. An empty value clears the field.
func (s changes) metadata(values []string) (c client.Change[map[string]string], err error) {
	switch {
	case !s.flags.Changed("metadata"):
		return c, nil
	case strings.Join(values, "") == "":
		return client.Clear[map[string]string](), nil
	}
	m, err := pairs("metadata", values)
	return client.Set(m), err
}

// limitFlag adds --limit.
func limitFlag(f *pflag.FlagSet, to *int) {
	f.IntVar(to, "limit", 0, "show at most `n` records; 0 means all")
}

// list checks --limit, sets the page size accordingly and connects.
func (a *app) list(o *client.ListOptions, limit int) (*client.Client, error) {
	if limit < 0 {
		return nil, usagef("--limit must not be negative, got %d", limit)
	}
	if limit > 0 && limit < 100 {
		o.PageSize = limit
	}
	return a.connect()
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// confirmFlag adds --yes to a command that destroys.
func (a *app) confirmFlag(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVarP(&a.Yes, "yes", "y", false, "do not ask for confirmation on a terminal")
	return c
}
