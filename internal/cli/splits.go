package cli

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/keygate/keygate/client"
)

// The flag --split has one entry of a split for each value: next=5%, next:header:X-Beta=1, next:key:key_…,key_… or
// next:owner:customer-42, and then perhaps ,random and ,fallback.

const (
	splitUsage = "`entry` of the split, such as next=5% or next:header:X-Beta=1, as of keygate gateways update; may be repeated, and replaces all entries; none splits nothing"
	noSplit    = "none"
)

// splitOf returns the entries that the values of --split give. It returns nil if there is none, and an empty list for none.
func splitOf(texts []string) ([]client.SplitInput, error) {
	switch {
	case strings.Join(texts, "") == "":
		return nil, nil
	case len(texts) == 1 && texts[0] == noSplit:
		return []client.SplitInput{}, nil
	}
	list := make([]client.SplitInput, len(texts))
	for i, text := range texts {
		var err error
		if list[i], err = splitEntryOf(text); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func splitEntryOf(text string) (e client.SplitInput, err error) {
	rest, random, fallback := text, false, false
	for cut := true; cut; {
		switch {
		case strings.HasSuffix(rest, ",random"):
			rest, random = strings.TrimSuffix(rest, ",random"), true
		case strings.HasSuffix(rest, ",fallback"):
			rest, fallback = strings.TrimSuffix(rest, ",fallback"), true
		default:
			cut = false
		}
	}
	wrong := usagef("--split %q must be the name of an upstream with a percentage, as in next=5%%, or with a condition: next:header:X-Beta=1, next:key:KEY_ID or next:owner:ID", text)
	at := strings.IndexAny(rest, "=:")
	if at <= 0 {
		return e, wrong
	}
	e.Upstream = rest[:at]
	if random {
		e.Sticky = new(false)
	}
	if fallback {
		e.Fallback = new(true)
	}
	if rest[at] == '=' {
		weight, err := strconv.ParseFloat(strings.TrimSuffix(rest[at+1:], "%"), 64)
		if err != nil {
			return e, wrong
		}
		e.Weight = &weight
		return e, nil
	}
	kind, value, _ := strings.Cut(rest[at+1:], ":")
	e.When = &client.SplitWhenInput{}
	switch kind {
	case "header":
		name, is, some := strings.Cut(value, "=")
		if !some || name == "" {
			return e, wrong
		}
		e.When.Header = &map[string]string{name: is}
	case "key":
		e.When.Key = new(strings.Split(value, ","))
	case "owner":
		e.When.Owner = new(strings.Split(value, ","))
	default:
		return e, wrong
	}
	if value == "" {
		return e, wrong
	}
	return e, nil
}

// splitText returns a split on one line, in the form that --split takes.
func splitText(list []client.Split) string {
	if len(list) == 0 {
		return noSplit
	}
	texts := make([]string, len(list))
	for i := range list {
		texts[i] = splitEntryText(&list[i])
	}
	return strings.Join(texts, " ")
}

func splitEntryText(e *client.Split) string {
	text := e.Upstream
	switch {
	case e.Weight != nil:
		text += "=" + strconv.FormatFloat(*e.Weight, 'f', -1, 64) + "%"
	case e.When == nil:
	case e.When.Header != nil:
		for name, value := range *e.When.Header {
			text += ":header:" + name + "=" + value
		}
	case e.When.Key != nil:
		text += ":key:" + strings.Join(*e.When.Key, ",")
	case e.When.Owner != nil:
		text += ":owner:" + strings.Join(*e.When.Owner, ",")
	}
	if !e.Sticky {
		text += ",random"
	}
	if e.Fallback {
		text += ",fallback"
	}
	return text
}

// splitChangeText returns a split in a difference on one line; "" if the value is none.
func splitChangeText(value []any) string {
	for _, item := range value {
		entry, _ := item.(map[string]any)
		if entry["upstream"] == nil || entry["sticky"] == nil {
			return ""
		}
	}
	content, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	var list []client.Split
	if err := json.Unmarshal(content, &list); err != nil {
		return ""
	}
	return splitText(list)
}
