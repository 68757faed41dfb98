package cluster

import (
	"fmt"
	"time"
)

// windows counts admitted requests in windows of time. A request counts for the windows in which it began
// and ended, so that it was decided within them.
type windows struct {
	cells [][maxCells]int32 // by the cell of its beginning, and how many cells later it ended
}

const (
	cell     = 500 * time.Millisecond
	maxCells = 120
)

// add adds a request, with the times of its beginning and its end since the load began.
func (w *windows) add(began, ended time.Duration) {
	from, length := int(began/cell), int(ended/cell-began/cell)
	if length >= maxCells {
		return
	}
	for len(w.cells) <= from {
		w.cells = append(w.cells, [maxCells]int32{})
	}
	w.cells[from][length]++
}

// exceeding returns what is wrong if a window of at most a minute has more requests than capacity + its length ×
// rate, and the largest excess over length × rate.
func (w *windows) exceeding(rate, capacity float64) (problem string, most float64) {
	after := make([]int, maxCells+1) // sums of the windows that begin one cell later, by length
	for from := len(w.cells) - 1; from >= 0; from-- {
		sums := make([]int, maxCells+1)
		within := 0
		for length := 1; length <= maxCells; length++ {
			within += int(w.cells[from][length-1])
			sums[length] = within + after[length-1]
			excess := float64(sums[length]) - rate*(time.Duration(length)*cell).Seconds()
			if excess > most {
				most = excess
			}
			if excess > capacity && problem == "" {
				problem = fmt.Sprintf("%d requests were admitted in the %v from %v on: %.0f more than the rate, want at most %.0f", sums[length], time.Duration(length)*cell, time.Duration(from)*cell, excess, capacity)
			}
		}
		after = sums
	}
	return problem, most
}
