package rows

import (
	"slices"
	"strconv"
	"strings"
)

// listedAtOnce is how many values one statement looks up.
const listedAtOnce = 128

// inLists calls f for parts of values, each with a condition of the form IN ($1, …) and its arguments. Every part has as many
// arguments, so that there is one statement to prepare. It is for bytes, which = ANY ($1) cannot have: SQLite gets that list as
// JSON. The statement must have no other condition that an index serves: SQLite takes a list of so many values for less selective
// than one account, of which it would read all rows.
func inLists(values [][]byte, f func(list string, args []any) error) error {
	names := make([]string, listedAtOnce)
	for i := range names {
		names[i] = "$" + strconv.Itoa(i+1)
	}
	list := "IN (" + strings.Join(names, ", ") + ")"
	for some := range slices.Chunk(values, listedAtOnce) {
		args := make([]any, 0, listedAtOnce)
		for i := range listedAtOnce {
			args = append(args, some[min(i, len(some)-1)])
		}
		if err := f(list, args); err != nil {
			return err
		}
	}
	return nil
}
