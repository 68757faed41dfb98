//go:build linux

package main

import (
	"fmt"
	"math"

	"github.com/keygate/keygate/bench/stats"
)

// figure identifies something that a run measures.
type figure int

// The figures.
const (
	cpu        figure = iota // CPU time per request over all processes of the proxy, µs
	throughput               // requests per second
	p50                      // ms
	p99                      // ms
	p999                     // ms
	memory                   // resident memory, MB
	calls                    // system calls per request; NaN if they could not be counted
	growth                   // growth of the memory in use, MB
	resident                 // growth of the resident memory, which includes freed heap memory, MB
	live                     // growth of live heap objects and stacks, MB
	download                 // MB/s
	upload                   // MB/s
	transfer                 // CPU time per GB, s
	figures
)

// sample holds the figures of one run.
type sample [figures]float64

// column describes how a table shows a figure.
type column struct {
	figure
	heading string
	digits  int
	ratio   bool // followed by a column with the ratio to the reference
}

func loadColumns() []column {
	return []column{
		{cpu, "CPU µs/request", 1, true}, {throughput, "requests/s", 0, true},
		{p50, "p50 ms", 2, false}, {p99, "p99 ms", 2, true}, {p999, "p99.9 ms", 2, false}, {memory, "memory MB", 0, false},
		{calls, "system calls/request", 1, false},
	}
}

func idleColumns() []column {
	return []column{{growth, "in use MB", 1, true}, {resident, "resident MB", 1, false}, {live, "live heap and stacks MB", 1, false}, {memory, "total MB", 1, false}}
}

func bulkColumns() []column {
	return []column{
		{download, "download MB/s", 0, true}, {upload, "upload MB/s", 0, true}, {transfer, "CPU s/GB", 2, true},
		{growth, "growth MB", 1, false}, {memory, "memory MB", 0, false},
	}
}

// series has the runs of one peer in one scenario; nil for a failed run.
type series []*sample

// values returns the values of a figure in all rounds that have one.
func (s series) values(f figure) (all []float64) {
	for _, run := range s {
		if run != nil && !math.IsNaN(run[f]) {
			all = append(all, run[f])
		}
	}
	return all
}

// ratios divides a figure by the same figure of the series to, round by round.
func (s series) ratios(f figure, to series) (all []float64) {
	for round := range min(len(s), len(to)) {
		if s[round] != nil && to[round] != nil && to[round][f] != 0 {
			all = append(all, s[round][f]/to[round][f])
		}
	}
	return all
}

// differences subtracts from a figure the same figure of the series to, round by round.
func (s series) differences(f figure, to series) (all []float64) {
	for round := range min(len(s), len(to)) {
		if s[round] != nil && to[round] != nil {
			all = append(all, s[round][f]-to[round][f])
		}
	}
	return all
}

// text formats the median of the values with the given number of digits.
func text(values []float64, digits int) string {
	v := stats.Median(values...)
	if len(values) == 0 || math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.*f", digits, v)
}
