package rows

import (
	"slices"
	"strconv"
	"strings"
)

// listedAtOnce is how many values one statement looks up.
const listedAtOnce = 128

// inLists calls f for parts of values, each with a condition of the form IN ($2, …) and its arguments, of which the first is
// of. Every part has as many arguments, so that there is one statement to prepare.
func inLists[T any](of any, values []T, f func(list string, args []any) error) error {
	var list strings.Builder
	for i := range listedAtOnce {
		list.WriteString(map[bool]string{true: "IN ($", false: ", $"}[i == 0] + strconv.Itoa(i+2))
	}
	list.WriteString(")")
	for some := range slices.Chunk(values, listedAtOnce) {
		args := make([]any, 1, listedAtOnce+1)
		args[0] = of
		for i := range listedAtOnce {
			args = append(args, some[min(i, len(some)-1)])
		}
		if err := f(list.String(), args); err != nil {
			return err
		}
	}
	return nil
}
