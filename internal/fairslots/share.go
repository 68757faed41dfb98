package fairslots

import "slices"

// Most returns the most that each of several may have of a total, by max-min fairness: those that want less leave the rest to the
// others.
func Most(total int, wanted []int) int {
	most := 0
	sorted := slices.Sorted(slices.Values(wanted))
	for i, w := range sorted {
		most = total / (len(sorted) - i)
		if w > most {
			return most
		}
		total -= w
	}
	return max(most, total)
}
