//go:build linux

package main

import (
	"fmt"
	"math"

	"github.com/keygate/keygate/bench/stats"
)

// figure is something that a run measures.
type figure int

// The figures.
const (
	cpu        figure = iota // processor time a request, µs, over all processes of the proxy
	throughput               // requests a second
	p50                      // ms
	p99                      // ms
	p999                     // ms
	memory                   // resident, MB
	growth                   // of the memory in use, MB
	resident                 // growth of all that is resident, also what a collection freed, MB
	live                     // growth of the heap's live objects and the stacks, MB
	download                 // MB/s
	upload                   // MB/s
	transfer                 // processor time for each GB, s
	figures
)

// sample is what one run measured.
type sample [figures]float64

// column is how a figure stands in a table.
type column struct {
	figure
	heading string
	digits  int
	ratio   bool // beside it, the ratio to the reference
}

func loadColumns() []column {
	return []column{
		{cpu, "CPU µs/request", 1, true}, {throughput, "requests/s", 0, true},
		{p50, "p50 ms", 2, false}, {p99, "p99 ms", 2, true}, {p999, "p99.9 ms", 2, false}, {memory, "memory MB", 0, false},
	}
}

func idleColumns() []column {
	return []column{{growth, "in use MB", 1, true}, {resident, "resident MB", 1, false}, {live, "live heap and stacks MB", 1, false}, {memory, "in all MB", 1, false}}
}

func bulkColumns() []column {
	return []column{
		{download, "download MB/s", 0, true}, {upload, "upload MB/s", 0, true}, {transfer, "CPU s/GB", 2, true},
		{growth, "growth MB", 1, false}, {memory, "memory MB", 0, false},
	}
}

// series is the runs of one peer in one scenario, a nil where one failed.
type series []*sample

// values returns a figure in each round.
func (s series) values(f figure) (all []float64) {
	for _, run := range s {
		if run != nil {
			all = append(all, run[f])
		}
	}
	return all
}

// ratios returns the ratios of a figure to that of to in the same round.
func (s series) ratios(f figure, to series) (all []float64) {
	for round := range min(len(s), len(to)) {
		if s[round] != nil && to[round] != nil && to[round][f] != 0 {
			all = append(all, s[round][f]/to[round][f])
		}
	}
	return all
}

// text returns the median of the values with a number of digits.
func text(values []float64, digits int) string {
	v := stats.Median(values...)
	if len(values) == 0 || math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.*f", digits, v)
}
