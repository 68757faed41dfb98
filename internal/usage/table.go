package usage

import (
	"cmp"
	"maps"
	"slices"
)

// Table sums uses. The zero value is empty.
type Table struct {
	uses  map[Identity]*Use
	spare []*Use // their memory is used again
	size  int
	more  int // number of meters of isOwn of all uses that were added
}

const (
	// useSize is about how many bytes a use takes in a body, without its texts and meters of isOwn.
	useSize = 110
	// amountSize is the same for such a meter, with its name.
	amountSize = 48
)

// Size returns about how many bytes bodies of what was added will have, at most.
func (t *Table) Size() int { return t.size }

// Of returns what the table has for an identity, to count for it. isNew says that there was nothing: then the caller sets
// its texts, which must not share the memory of a request.
func (t *Table) Of(i *Identity) (u *Use, isNew bool) {
	u, known := t.uses[*i]
	if known {
		return u, false
	}
	if t.uses == nil {
		t.uses = map[Identity]*Use{}
	}
	if last := len(t.spare) - 1; last >= 0 {
		u, t.spare = t.spare[last], t.spare[:last]
	} else {
		u = new(Use)
	}
	u.Identity = *i
	t.uses[*i] = u
	return u, true
}

// Has reports whether there is something for an identity.
func (t *Table) Has(i *Identity) bool { return t.uses[*i] != nil }

// Add adds a use.
func (t *Table) Add(u *Use) {
	to, isNew := t.Of(&u.Identity)
	if isNew {
		to.Texts = u.Texts
		t.size += useSize + len(u.ExternalID) + len(u.Plan) + len(u.Prefix)
	}
	for _, a := range u.Amounts {
		if to.Count(a.Meter, a.Units, a.Requests) > 0 {
			t.more++
			t.size += amountSize
		}
	}
}

// AddBody adds the uses of a chunk or block. It returns an error if that is damaged; some of it may have been added.
func (t *Table) AddBody(body []byte) error {
	return Each(body, func(u *Use) error {
		t.Add(u)
		return nil
	})
}

// AddDay is AddBody, but adds each use to the day of its period, in UTC.
func (t *Table) AddDay(body []byte) error {
	return Each(body, func(u *Use) error {
		u.From -= u.From % 86400
		u.Until = u.From + 86400
		t.Add(u)
		return nil
	})
}

// Follow sets the sequences of uses in the table to those of earlier records in a block, if these are greater.
func (t *Table) Follow(body []byte) error {
	return Each(body, func(earlier *Use) error {
		u := t.uses[earlier.Identity]
		if u == nil {
			return nil
		}
		for _, e := range earlier.Amounts {
			if a := u.of(e.Meter); a != nil {
				a.Sequence = max(a.Sequence, e.Sequence)
			}
		}
		return nil
	})
}

// Cut removes the uses whose identities are least or follow it, and returns them as Sorted does.
func (t *Table) Cut(least *Identity) []*Use {
	cut := Table{uses: map[Identity]*Use{}}
	for i, u := range t.uses {
		if i.Compare(least) >= 0 {
			cut.uses[i] = u
			delete(t.uses, i)
		}
	}
	return cut.Sorted()
}

// Finish makes records of the table: it returns the uses as Sorted does, each amount with the sequence that follows those
// which Follow has found.
func (t *Table) Finish() []*Use {
	uses := t.Sorted()
	for _, u := range uses {
		for i := range u.Amounts {
			u.Amounts[i].Sequence++
		}
	}
	return uses
}

// Len returns the number of identities, with one more for each meter of a cost that was added to one.
func (t *Table) Len() int { return len(t.uses) + t.more }

// Sorted returns the uses in the order of Identity.Compare, their meters in the order of their names.
func (t *Table) Sorted() []*Use {
	list := slices.SortedFunc(maps.Values(t.uses), func(a, b *Use) int { return a.Compare(&b.Identity) })
	for _, u := range list {
		slices.SortFunc(u.Amounts, func(a, b Amount) int { return cmp.Compare(a.Meter, b.Meter) })
	}
	return list
}

// Clear removes all uses, and keeps their memory for others: those that Sorted has returned are no longer valid.
func (t *Table) Clear() {
	for _, u := range t.uses {
		*u = Use{Amounts: u.Amounts[:0]}
		t.spare = append(t.spare, u)
	}
	clear(t.uses)
	t.size, t.more = 0, 0
}

func (u *Use) total() (most int64) {
	for _, a := range u.Amounts {
		most = max(most, a.Requests)
	}
	return most
}
