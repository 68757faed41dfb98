package provider

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// ValidateConfig implements resource.ResourceWithValidateConfig: it checks what the API document says about the values, so that
// a plan fails and not an apply. No message has a value, which may be secret.
func (r *record) ValidateConfig(_ context.Context, req resource.ValidateConfigRequest, res *resource.ValidateConfigResponse) {
	config := members(req.Config.Raw, &res.Diagnostics)
	for _, name := range slices.Sorted(maps.Keys(r.kind.Attributes)) {
		r.kind.Attributes[name].check(path.Root(name), config[name], &res.Diagnostics)
	}
}

// check adds an error for each part of a value that the API would refuse. What is not known yet passes.
func (a *attribute) check(at path.Path, v tftypes.Value, diags *diag.Diagnostics) {
	if !v.IsKnown() || v.IsNull() || a.Type == "any" {
		return
	}
	bad := func(format string, args ...any) {
		diags.AddAttributeError(at, "Not valid", at.String()+" "+fmt.Sprintf(format, args...)+".")
	}
	var err error
	size, unit := new(big.Float), "" // what is counted, in the plural
	switch a.Type {
	case "string":
		var s string
		err = v.As(&s)
		if len(a.Choices) > 0 {
			if !slices.Contains(a.Choices, s) {
				bad("must be %s", oneOf(a.Choices))
			}
			return
		}
		if wrong := formProblem(a.Form, s); wrong != "" {
			bad("%s", wrong)
			return
		}
		size.SetInt64(int64(utf8.RuneCountInString(s)))
		unit = "characters"
	case "int", "number":
		err = v.As(size)
	case "list":
		size, err = a.checkList(at, v, diags)
		unit = "elements"
	case "map", "object":
		size, err = a.checkMembers(at, v, diags)
		unit = "members"
	}
	switch {
	case err != nil:
		bad("cannot be read: %v", err)
	case a.Least != nil && size.Cmp(big.NewFloat(*a.Least)) < 0:
		bad("must %s", bound("at least", *a.Least, unit))
	case a.Most != nil && size.Cmp(big.NewFloat(*a.Most)) > 0:
		bad("must %s", bound("at most", *a.Most, unit))
	}
}

// checkList checks the elements of a list, and returns how many there are.
func (a *attribute) checkList(at path.Path, v tftypes.Value, diags *diag.Diagnostics) (*big.Float, error) {
	var items []tftypes.Value
	err := v.As(&items)
	for i, item := range items {
		if a.Form == "networks" {
			if problem := networkProblem(text(item)); item.IsKnown() && !item.IsNull() && problem != "" {
				diags.AddAttributeError(at.AtListIndex(i), "Not valid", at.AtListIndex(i).String()+" "+problem+".")
			}
			continue
		}
		a.Of.check(at.AtListIndex(i), item, diags)
	}
	return big.NewFloat(float64(len(items))), err
}

// checkMembers checks the members of an object or map, and returns how many there are.
func (a *attribute) checkMembers(at path.Path, v tftypes.Value, diags *diag.Diagnostics) (*big.Float, error) {
	var values map[string]tftypes.Value
	err := v.As(&values)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if a.Of != nil {
			a.Of.check(at.AtMapKey(name), values[name], diags)
		} else {
			a.Attributes[name].check(at.AtName(name), values[name], diags)
		}
	}
	return big.NewFloat(float64(len(values))), err
}

var (
	rateForm  = regexp.MustCompile(`^[1-9][0-9]*/(s|sec|second|min|minute|h|hour|day)$`)
	quotaForm = regexp.MustCompile(`^[1-9][0-9]*/(day|week|month|total)$`)
)

// formProblem returns what is wrong with a string that has a form, or "".
func formProblem(form, s string) string {
	switch form {
	case "duration":
		if _, err := time.ParseDuration(s); err != nil {
			return "must be a duration such as 500ms, 30s or 1m30s"
		}
	case "rate":
		if !rateForm.MatchString(s) {
			return "must be a rate such as 600/min: a count, and one of the units s, sec, second, min, minute, h, hour and day"
		}
	case "quota":
		if !quotaForm.MatchString(s) {
			return "must be a quota such as 100000/month: a count, and one of the windows day, week, month and total"
		}
	}
	return ""
}

func networkProblem(s string) string {
	if p, err := netip.ParsePrefix(s); err != nil || p.Masked() != p {
		return "must be a network such as 203.0.113.0/24, without bits behind the prefix; a single address ends in /32, or /128 for IPv6"
	}
	return ""
}

// oneOf lists values for a message.
func oneOf(choices []string) string {
	if len(choices) == 1 {
		return choices[0]
	}
	return strings.Join(choices[:len(choices)-1], ", ") + " or " + choices[len(choices)-1]
}

// bound writes a bound of a number, or of how many there are of a unit.
func bound(relation string, f float64, unit string) string {
	number := big.NewFloat(f).Text('f', -1)
	switch {
	case unit == "":
		return "be " + relation + " " + number
	case f == 1:
		unit = strings.TrimSuffix(unit, "s")
	}
	return "have " + relation + " " + number + " " + unit
}
