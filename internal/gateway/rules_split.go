package gateway

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/owner"
)

// Check checks a split by itself. Errors are validation errors of its items, as "[1].weight", or of the whole, without a field.
func (s Split) Check() error {
	if len(s) > MaxSplitEntries {
		return fault.Invalid("", "must not have more than %d entries", MaxSplitEntries)
	}
	var problems []error
	weighted := -1
	for i := range s {
		at := fmt.Sprintf("[%d]", i)
		problems = append(problems, fault.Prefixed(at, s[i].check()))
		switch {
		case s[i].Weight == nil:
		case weighted >= 0:
			problems = append(problems, fault.Invalid(at+".weight", "is a second weight: only one entry may have one, and [%d] has it. Give this entry a condition, when", weighted))
		default:
			weighted = i
		}
	}
	if err := fault.Join(problems...); err != nil {
		return err
	}
	if splitBytes(s) > MaxSplitBytes {
		return fault.Invalid("", "is longer than %d KiB as JSON, the most that a split may have: name fewer keys or owners", MaxSplitBytes>>10)
	}
	return nil
}

// check checks an entry. Errors are validation errors of its fields.
func (e *SplitEntry) check() error {
	var badName, badWeight, badSticky, badWhen error
	switch {
	case e.Upstream == "":
		badName = fault.Invalid("upstream", "is missing: name an upstream of the gateway")
	case CheckUpstreamName(e.Upstream) != nil:
		badName = fault.Invalid("upstream", "is not the name of an upstream, which has 1 to %d characters of a-z, 0-9, - and _", maxUpstreamName)
	}
	if e.Weight != nil && (*e.Weight < 0 || *e.Weight > hundred) {
		badWeight = fault.Invalid("weight", "must be a percentage between 0 and 100 with at most 2 decimals, such as 5 or 0.25")
	}
	switch {
	case e.Weight == nil && e.When == nil:
		badWhen = fault.Invalid("weight", "is missing: give a weight in percent, or a condition, when")
	case e.Weight != nil && e.When != nil:
		badWhen = fault.Invalid("when", "cannot be given with a weight: make two entries of it")
	case e.When != nil:
		badWhen = fault.Prefixed("when", e.When.check())
		if e.Random {
			badSticky = fault.Invalid("sticky", "needs a weight: a condition decides for each request")
		}
	}
	return fault.Join(badName, badWeight, badSticky, badWhen)
}

func (w *SplitWhen) check() error {
	kinds := 0
	for _, has := range []bool{w.Header != nil, w.Key != nil, w.Owner != nil} {
		if has {
			kinds++
		}
	}
	if kinds != 1 {
		return fault.Invalid("", "must have exactly one of header, key and owner")
	}
	if w.Header != nil {
		return checkSplitHeader(w.Header)
	}
	if w.Key != nil {
		return checkSplitNames("key", w.Key, func(field, s string) error {
			if _, ok := id.Parse(id.Key, s); !ok {
				return fault.Invalid(field, "is not the identifier of a key, such as key_01jz8y5c3te9b8r2m6q4v7x0dd")
			}
			return nil
		})
	}
	return checkSplitNames("owner", w.Owner, owner.CheckExternalID)
}

// checkSplitNames checks the keys or owners of a condition.
func checkSplitNames(field string, list []string, check func(field, s string) error) error {
	switch {
	case len(list) == 0:
		return fault.Invalid(field, "must name at least one: leave the entry out otherwise")
	case len(list) > MaxSplitNames:
		return fault.Invalid(field, "must not name more than %d", MaxSplitNames)
	}
	var problems []error
	for i, s := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		if slices.Contains(list[:i], s) {
			problems = append(problems, fault.Invalid(at, "is a duplicate"))
			continue
		}
		problems = append(problems, check(at, s))
	}
	return fault.Join(problems...)
}

// checkSplitHeader checks the header of a condition. One that holds keys cannot be it: a configuration has no secrets in clear.
func checkSplitHeader(h map[string]string) error {
	if len(h) != 1 {
		return fault.Invalid("header", "must have exactly one header with its value, as in {X-Beta: \"1\"}")
	}
	for name, value := range h {
		folded := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		switch at := "header." + name; {
		case !isToken(name) || len(name) > maxHeaderName:
			return fault.Invalid("header", "%.40q is not a valid header name", name)
		case folded == "authorization" || folded == "cookie" || isReservedHeader(folded):
			return fault.Invalid(at, "cannot decide: it frames the message, holds secrets, or Keygate sets it. Use a header of your own, such as X-Beta")
		case value == "" || len(value) > MaxSplitHeaderValue || !isHeaderValue(value):
			return fault.Invalid(at, "must have 1 to %d printable characters, and no spaces at either end", MaxSplitHeaderValue)
		}
	}
	return nil
}

// CheckSplit checks that g has the upstreams that a split of it or of one of its routes names, and that no condition is a header
// that holds its keys. Errors are validation errors of the items.
func (g *Gateway) CheckSplit(s Split) error {
	var problems []error
	for i, name := range s.Names {
		if g.UpstreamNamed(name) == nil {
			problems = append(problems, fault.Invalid(fmt.Sprintf("[%d].upstream", i), "the gateway has no upstream with the name %s: create it first, or name another one", name))
		}
		if s[i].When == nil {
			continue
		}
		for header := range s[i].When.Header {
			if slices.ContainsFunc(g.Requests.AllKeyHeaders(), func(k string) bool { return strings.EqualFold(k, header) }) {
				problems = append(problems, fault.Invalid(fmt.Sprintf("[%d].when.header.%s", i, header), "cannot decide: the gateway takes keys from it. Use a header of your own, such as X-Beta"))
			}
		}
	}
	return fault.Join(problems...)
}
