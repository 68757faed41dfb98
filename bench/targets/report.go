//go:build linux

package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/bench/stats"
)

// row is a row of the table.
type row struct{ measure, figure, bar, met string }

// atMost returns a row with a bar. format is of both numbers.
func atMost(measure, format string, figure, bar float64) row {
	return row{measure, fmt.Sprintf(format, figure), "≤ " + fmt.Sprintf(format, bar), yes(figure <= bar)}
}

// none returns a row whose bar is 0 of all.
func none(measure string, n, all int) row {
	return row{measure, fmt.Sprintf("%d of %d", n, all), "0", yes(n == 0)}
}

// only returns a row without a bar.
func only(measure, figure string) row { return row{measure: measure, figure: figure} }

func yes(met bool) string {
	if met {
		return "yes"
	}
	return "no"
}

// report returns rows as a table in Markdown.
func report(rows []row) string {
	t := stats.Table{Columns: []string{"Measure", "Figure", "Bar", "Met"}}
	for _, r := range rows {
		t.Add(r.measure, r.figure, r.bar, r.met)
	}
	return t.String()
}

// metric returns the sum of a metric's values over all series that have all the labels, each written NAME="VALUE".
func metric(text []byte, name string, labels ...string) (sum float64) {
lines:
	for line := range bytes.Lines(text) {
		series, found := bytes.CutPrefix(line, []byte(name+"{"))
		if !found {
			continue
		}
		i := bytes.LastIndexByte(series, '}')
		if i < 0 {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(","+string(series[:i])+",", ","+l+",") {
				continue lines
			}
		}
		value, err := strconv.ParseFloat(string(bytes.TrimSpace(series[i+1:])), 64)
		if err == nil {
			sum += value
		}
	}
	return sum
}

// percent returns what n is of all, in percent.
func percent(n, all float64) float64 {
	if all == 0 {
		return 0
	}
	return 100 * n / all
}

// apart returns the largest difference of a number from the mean of all, in percent of the mean.
func apart(numbers ...float64) (most float64) {
	mean := 0.0
	for _, n := range numbers {
		mean += n / float64(len(numbers))
	}
	for _, n := range numbers {
		most = max(most, percent(max(n-mean, mean-n), mean))
	}
	return most
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }
