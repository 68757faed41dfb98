package document

import (
	"strconv"
	"strings"
	"unicode"
)

// Mismatch returns the error for a node that is not of the kind want. The error says what to write
// instead, as far as the node shows it. form describes what is wanted, as in "a list such as [GET,
// POST]"; "" stands for the kind itself.
func (n *Node) Mismatch(field string, want Kind, form string) error {
	if form == "" {
		form = want.String()
	}
	if hint := n.remedy(want); hint != "" {
		return n.Invalid(field, "must be %s, not %s: %s", form, n.Kind, hint)
	}
	return n.Invalid(field, "must be %s, not %s", form, n.Kind)
}

// boolOf returns the boolean that a word of YAML 1.1 or of people stands for, or "".
func boolOf(word string) string {
	switch strings.ToLower(word) {
	case "yes", "y", "on", "true", "1":
		return "true"
	case "no", "n", "off", "false", "0":
		return "false"
	}
	return ""
}

func (n *Node) remedy(want Kind) string {
	text := strings.TrimSpace(n.Text)
	switch {
	case n.Kind == Null && (want == Mapping || want == Sequence):
		return "it has no content; indent what belongs to it below it"
	case n.Kind == String && (want == Mapping || want == Sequence) && Lookalike(text) != "":
		return Lookalike(text)
	case n.Kind == String && want == Mapping && isJoined(text):
		return "write a space after the colon, as in name: value"
	case n.Kind == String && want == Sequence && strings.HasPrefix(text, "-"):
		return "write a space after the dash, as in - value"
	case n.Kind == Mapping && want == Sequence && len(n.Nodes) > 0 && strings.HasPrefix(n.Nodes[0].Name, "-"):
		return "write a space after the dash, as in - name: value"
	case n.Kind == Mapping && want == Sequence && len(n.Nodes) == 0:
		return "write [] for an empty one"
	case n.Kind == Mapping && want == Sequence:
		return "begin each item with a dash and a space"
	case n.Kind == Mapping && want == String:
		return "put a text that begins with { in quotes"
	case want == String && (n.Kind == Number || n.Kind == Bool):
		return "put it in quotes" // the text may be secret
	case want == Bool && boolOf(text) != "":
		return "write " + boolOf(text) + ", without quotes"
	case want == Number && n.Kind == String:
		if _, ok := Integer(text); ok {
			return "remove the quotes"
		}
		return "write it in digits, without a unit"
	}
	return ""
}

// isJoined reports whether a text is a name and a value without a space between them.
func isJoined(text string) bool {
	name, value, _ := strings.Cut(text, ":")
	return name != "" && value != "" && value[0] != ' ' && value[0] != '\t' && !strings.HasPrefix(value, "//") && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// maxExponent bounds the exponent that Integer evaluates: with more zeros, no number but 0 fits an int64.
const maxExponent = 30

// Integer returns the whole number that text is in JSON, where 7.0 and 7e0 mean 7. ok is false if text is
// not a whole number, or the number does not fit.
func Integer(text string) (n int64, ok bool) {
	digits, negative := strings.CutPrefix(text, "-")
	digits, exponentText, hasExponent := strings.Cut(strings.ReplaceAll(digits, "E", "e"), "e")
	whole, fraction, hasFraction := strings.Cut(digits, ".")
	if !isDigits(whole) || hasFraction && !isDigits(fraction) || len(whole) > 1 && whole[0] == '0' {
		return 0, false
	}
	exponent := 0
	if hasExponent {
		if !isDigits(strings.TrimLeft(exponentText, "+-")) || len(strings.TrimLeft(exponentText, "+-"))+1 < len(exponentText) {
			return 0, false
		}
		var err error
		if exponent, err = strconv.Atoi(exponentText); err != nil {
			exponent = maxExponent + 1 + len(text) // of either sign: then only 0 is left
			if exponentText[0] == '-' {
				exponent = -exponent
			}
		}
	}
	all := strings.TrimRight(whole+fraction, "0")
	zeros := len(whole) + exponent - len(all) // to put after all
	all = strings.TrimLeft(all, "0")
	switch {
	case all == "":
		return 0, true
	case zeros < 0 || zeros > maxExponent:
		return 0, false
	}
	if negative {
		all = "-" + all
	}
	n, err := strconv.ParseInt(all+strings.Repeat("0", zeros), 10, 64)
	return n, err == nil
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Unknown returns the error for a member with a name that has no meaning.
func (n *Node) Unknown(field, format string, args ...any) error {
	if odd := Lookalike(n.Name); odd != "" {
		format += ": %s"
		args = append(args, odd)
	}
	return n.NamePosition.Invalid(field, format, args...)
}

// HasLike reports whether a mapping has a member that is meant to be name: its name differs only in
// letter case, in invisible characters, or in quotes around it. Such a member is reported as unknown.
func (n *Node) HasLike(name string) bool {
	for i := range n.Nodes {
		plain := strings.TrimFunc(n.Nodes[i].Name, func(r rune) bool {
			kind, _ := alike(r)
			return kind != "" || r == '-' || unicode.IsSpace(r)
		})
		if n.Nodes[i].Name != name && strings.EqualFold(plain, name) {
			return true
		}
	}
	return false
}
