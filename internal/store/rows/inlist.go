package rows

import (
	"slices"
	"strconv"
	"strings"
)

// listedAtOnce is how many values one statement looks up.
const listedAtOnce = 128

// inLists calls f for parts of values, each with a condition of the form IN ($2, …) and its arguments, of which the first is
// of. Every part has as many arguments, so that there is one statement to prepare. It is for bytes, which = ANY ($1) cannot have:
// SQLite gets that list as JSON.
func inLists(of any, values [][]byte, f func(list string, args []any) error) error {
	names := make([]string, listedAtOnce)
	for i := range names {
		names[i] = "$" + strconv.Itoa(i+2)
	}
	list := "IN (" + strings.Join(names, ", ") + ")"
	for some := range slices.Chunk(values, listedAtOnce) {
		args := make([]any, 1, listedAtOnce+1)
		args[0] = of
		for i := range listedAtOnce {
			args = append(args, some[min(i, len(some)-1)])
		}
		if err := f(list, args); err != nil {
			return err
		}
	}
	return nil
}
