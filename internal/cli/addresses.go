package cli

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/cli/terminal"
)

// addressFlags are the flags of the networks whose addresses may use a key or a route, and may not.
type addressFlags struct{ allow, deny []string }

const (
	allowFlag = "allow-ip"
	denyFlag  = "deny-ip"
)

// add adds the flags; what names the record, as in "the key".
func (a *addressFlags) add(f *pflag.FlagSet, what string) {
	f.StringSliceVar(&a.allow, allowFlag, nil, "`network` whose addresses may use "+what+", such as 203.0.113.0/24, while all others may not; may be repeated")
	f.StringSliceVar(&a.deny, denyFlag, nil, "`network` whose addresses may not use "+what+"; may be repeated")
}

// given returns the lists of a creation; nil for one that is not given.
func (a *addressFlags) given() (allow, deny *[]string) {
	if len(a.allow) > 0 {
		allow = &a.allow
	}
	if len(a.deny) > 0 {
		deny = &a.deny
	}
	return allow, deny
}

// changes returns the changes of the lists. An empty value removes one.
func (a *addressFlags) changes(f *pflag.FlagSet) (allow, deny client.Change[[]string]) {
	change := func(flag string, list []string) (c client.Change[[]string]) {
		switch {
		case !f.Changed(flag):
		case len(list) == 0:
			c = client.Clear[[]string]()
		default:
			c = client.Set(list)
		}
		return c
	}
	return change(allowFlag, a.allow), change(denyFlag, a.deny)
}

// addressFields returns what a table shows of the lists, without those that are not set.
func addressFields(allow, deny *[]string) []terminal.Field {
	var fields []terminal.Field
	for _, list := range []struct {
		title    string
		networks *[]string
	}{{"ALLOWED ADDRESSES", allow}, {"DENIED ADDRESSES", deny}} {
		if list.networks != nil && len(*list.networks) > 0 {
			fields = append(fields, terminal.Field{list.title, strings.Join(*list.networks, ", ")})
		}
	}
	return fields
}
