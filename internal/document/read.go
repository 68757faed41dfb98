package document

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// The methods below read values. Their errors are validation errors of the field, with positions.

// EachMember calls f for each field of a mapping, and then the functions in last. It returns
// one error for all that they return.
func (n *Node) EachMember(field string, f func(m *Node) error, last ...func() error) error {
	if n.Kind != Mapping {
		return n.Mismatch(field, Mapping, "")
	}
	var problems Problems
	for i := range n.Nodes {
		if problems.Add(f(&n.Nodes[i])); problems.Full() {
			return problems.Err()
		}
	}
	for _, check := range last {
		problems.Add(check())
	}
	return problems.Err()
}

// ReadText returns the content of a string.
func (n *Node) ReadText(field string) (string, error) {
	if n.Kind != String {
		return "", n.Mismatch(field, String, "")
	}
	return strings.Clone(n.Text), nil
}

// ReadTexts returns a list of strings.
func (n *Node) ReadTexts(field string) ([]string, error) {
	if n.Kind != Sequence {
		return nil, n.Mismatch(field, Sequence, "")
	}
	var problems Problems
	list := make([]string, len(n.Nodes))
	for i := range n.Nodes {
		var err error
		list[i], err = n.Nodes[i].ReadText(fmt.Sprintf("%s[%d]", field, i))
		if problems.Add(err); problems.Full() {
			break
		}
	}
	return list, problems.Err()
}

// ReadCount returns a whole number.
func (n *Node) ReadCount(field string) (int64, error) {
	if n.Kind != Number {
		return 0, n.Mismatch(field, Number, "")
	}
	count, ok := Integer(n.Text)
	if !ok {
		return 0, n.Invalid(field, "must be a whole number in decimal digits, such as 1048576: %q is read in several ways, or is none", Short(n.Text))
	}
	return count, nil
}

// WithPosition adds a position to each problem of a validation error of the content of n: the
// position of the value that the problem names, or of the nearest value around it. It also puts
// field before the problem's field. A letter that looks like another is mentioned, but not of the fields in free, which
// may have any letters.
func WithPosition(err error, n *Node, field string, free ...string) error {
	list := fault.ProblemsOf(err)
	if list == nil {
		return err
	}
	var problems Problems
	problems.AddLeftOut(fault.LeftOut(err))
	for _, p := range list {
		name := strings.Trim(field+"."+p.Field, ".")
		if strings.HasPrefix(p.Field, "[") {
			name = field + p.Field
		}
		at := within(n, p.Field)
		if odd := Lookalike(at.Text); odd != "" && !slices.Contains(free, name) && !strings.Contains(p.Message, odd) {
			p.Message += ": " + odd
		}
		problems.Add(at.Invalid(name, "%s", p.Message))
	}
	return problems.Err()
}

// within returns the node below n that a dotted path leads to, or the last node on the way.
func within(n *Node, path string) *Node {
	for path != "" {
		if m := n.Member(path); m != nil { // a name may have dots
			return m
		}
		var m *Node
		var rest string
		if number, isItem := strings.CutPrefix(path, "["); isItem {
			number, rest, _ = strings.Cut(number, "]")
			if i, err := strconv.Atoi(number); err == nil && 0 <= i && i < len(n.Nodes) {
				m = &n.Nodes[i]
			}
		} else {
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				return n
			}
			m, rest = n.Member(path[:end]), path[end:]
		}
		if m == nil {
			return n
		}
		n, path = m, strings.TrimPrefix(rest, ".")
	}
	return n
}
