package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// maxTypos is the number of characters in which a name may differ from the name that was probably meant.
const maxTypos = 2

// nearestFlag returns the name of the flag that was probably meant, if err says that a flag
// does not exist; else "".
func nearestFlag(c *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	name := unknown.GetSpecifiedName()
	if len(name) <= maxTypos {
		return ""
	}
	var all []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			all = append(all, f.Name)
		}
	})
	return nearest(name, all, func(known string) bool { return strings.HasPrefix(known, name) || strings.HasPrefix(name, known) })
}

// nearest returns which of all names was probably meant by name: the first with the fewest typos, of which there may be
// maxTypos. A name that is alike counts as having no more. It returns "" if none is near.
func nearest(name string, all []string, alike func(known string) bool) (near string) {
	least := maxTypos + 1
	for _, known := range all {
		d := distance(name, known)
		if alike(known) {
			d = min(d, maxTypos)
		}
		if d < least {
			near, least = known, d
		}
	}
	return near
}

// distance returns how many characters must be inserted, removed or replaced to turn x into
// y.
func distance(x, y string) int {
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(x) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(y) {
			replaced := corner
			if x[i] != y[j] {
				replaced++
			}
			corner = row[j+1]
			row[j+1] = min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(y)]
}
