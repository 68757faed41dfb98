package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/gateway"
)

// headerRulesOf returns the rules that the flags with headers to set and to remove give; nil for none.
func headerRulesOf(f *pflag.FlagSet, set, remove string) (*client.HeaderRulesInput, error) {
	var rules client.HeaderRulesInput
	if lines := listFlag(f, gateway.Flag{Name: set}); strings.Join(lines, "") != "" {
		headers, err := pairs(set, lines)
		if err != nil {
			return nil, err
		}
		rules.Set = &headers
	}
	if names := listFlag(f, gateway.Flag{Name: remove}); strings.Join(names, "") != "" {
		rules.Remove = &names
	}
	if rules.Set == nil && rules.Remove == nil {
		return nil, nil
	}
	return &rules, nil
}

// headerRulesGiven returns the rules of a route that its flags give, for requests and for responses; nil for none.
func headerRulesGiven(f *pflag.FlagSet) (requests, responses *client.HeaderRulesInput, err error) {
	if requests, err = headerRulesOf(f, requestHeaderFlag, removeFlag+requestHeaderFlag); err != nil {
		return nil, nil, err
	}
	responses, err = headerRulesOf(f, responseHeaderFlag, removeFlag+responseHeaderFlag)
	return requests, responses, err
}

// headerRulesChange returns the change to the rules of a flag and of the flag for what is removed: nil removes them.
func headerRulesChange(c *cobra.Command, flag string, rules *client.HeaderRulesInput) client.Change[client.HeaderRulesInput] {
	if c.Flags().Changed(removeFlag + flag) {
		flag = removeFlag + flag
	}
	return changeOf(c, flag, rules)
}

// headerRulesText returns rules on one line.
func headerRulesText(r client.HeaderRules) string {
	var texts []string
	for _, name := range sortedKeys(r.Set) {
		texts = append(texts, name+"="+r.Set[name])
	}
	for _, name := range r.Remove {
		texts = append(texts, "-"+name)
	}
	return strings.Join(texts, ", ")
}
