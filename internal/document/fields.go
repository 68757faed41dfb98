package document

import (
	"slices"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// Fields reads the fields of a mapping by their names. null is an absent field, except for one that is required.
type Fields map[string]func(m *Node, at string) error

// Read reads n, which is at a field. unknown says of other fields that there are none of these. It returns the fields that
// were not read, and what is wrong.
func (f Fields) Read(n *Node, at, unknown string, required ...string) (unread map[string]bool, err error) {
	unread = map[string]bool{}
	missing := func() error {
		var problems Problems
		for _, name := range required {
			if n.Member(name) == nil {
				unread[name] = true
				if !n.HasLike(name) {
					problems.Add(n.Invalid(Below(at, name), "is missing"))
				}
			}
		}
		return problems.Err()
	}
	err = n.EachMember(at, func(m *Node) error {
		read := f[m.Name]
		switch {
		case read == nil:
			return m.Unknown(Below(at, m.Name), "%s", unknown)
		case m.Kind == Null && !slices.Contains(required, m.Name):
			return nil
		}
		err := read(m, Below(at, m.Name))
		unread[m.Name] = err != nil
		return err
	}, missing)
	return unread, err
}

// Below returns the field of a mapping that is at a field.
func Below(at, name string) string { return strings.TrimPrefix(at+"."+name, ".") }

// TextOf returns what reads a string that is not empty.
func TextOf(to *string) func(*Node, string) error {
	return func(m *Node, at string) (err error) {
		if *to, err = m.ReadText(at); err == nil && *to == "" {
			err = m.Invalid(at, "must not be empty: leave it out instead")
		}
		return err
	}
}

// Wrong returns the problems of a validation error of n, which is at a field, with their positions and without those of
// fields that were not read. The fields in free may have any letters.
func Wrong(err error, n *Node, at string, unread map[string]bool, free ...string) error {
	rest := slices.DeleteFunc(slices.Clone(fault.ProblemsOf(err)), func(p fault.Problem) bool { return unread[p.Field] })
	for i := range free {
		free[i] = Below(at, free[i])
	}
	return WithPosition(fault.InvalidAll(rest, fault.LeftOut(err)), n, at, free...)
}
