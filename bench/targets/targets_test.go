//go:build linux

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/keygate/keygate/bench/command"
)

// Guarantee: a bar is met up to its value, and the table says of each row whether it is; rows without a bar say nothing.
func TestReportSaysWhichBarsAreMet(t *testing.T) {
	got := report([]row{atMost("share", "%.1f", 5, 5), atMost("p99", "%.1f", 1.6, 1.5), none("failed", 0, 9), none("lost", 1, 9), only("all", "7")})
	want := "| Measure | Figure |   Bar | Met |\n" +
		"| ------- | -----: | ----: | --: |\n" +
		"| share   |    5.0 | ≤ 5.0 | yes |\n" +
		"| p99     |    1.6 | ≤ 1.5 |  no |\n" +
		"| failed  | 0 of 9 |     0 | yes |\n" +
		"| lost    | 1 of 9 |     0 |  no |\n" +
		"| all     |      7 |       |     |\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Guarantee: a metric is summed over the series that have all labels, whatever their order, and over no other metric's.
func TestMetricIsSummedOverItsSeries(t *testing.T) {
	text := []byte("# HELP x_total of targets\nx_total{gateway=\"g\",target=\"a:1\"} 3\nx_total{gateway=\"g\",target=\"a:10\"} 5\n" +
		"x_total{target=\"a:1\",upstream=\"u\"} 1e2\nx_total_more{target=\"a:1\"} 7\nx_total 11\n")
	for _, c := range []struct {
		labels []string
		want   float64
	}{{nil, 108}, {[]string{`target="a:1"`}, 103}, {[]string{`target="a:1"`, `gateway="g"`}, 3}, {[]string{`target="b:1"`}, 0}} {
		if got := metric(text, "x_total", c.labels...); got != c.want {
			t.Errorf("with %v: got %g, want %g", c.labels, got, c.want)
		}
	}
}

// Guarantee: failures count from a time on, and quantiles over all requests.
func TestSamples(t *testing.T) {
	s := samples{{0, 4, false}, {time.Second, 3, true}, {2 * time.Second, 2, false}, {time.Second - 1, 1, true}}
	if n, all := s.failed(time.Second); n != 1 || all != 2 {
		t.Errorf("%d of %d failed after the first second, want 1 of 2", n, all)
	}
	if n, all := s.failed(0); n != 2 || all != 4 {
		t.Errorf("%d of %d failed, want 2 of 4", n, all)
	}
	if got := s.quantile(0.75); got != 3 {
		t.Errorf("quantile 0.75 is %v, want 3 ns", got)
	}
}

// Guarantee: shares are compared with their mean, and nothing is 0 % of nothing.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		numbers []float64
		want    float64
	}{{[]float64{5, 5}, 0}, {[]float64{8, 12}, 20}, {[]float64{0, 0}, 0}, {[]float64{1, 2, 6}, 100}} {
		if got := apart(c.numbers...); got != c.want {
			t.Errorf("%v are %g %% apart, want %g", c.numbers, got, c.want)
		}
	}
	if got := percent(3, 0); got != 0 {
		t.Errorf("3 of 0 are %g %%, want 0", got)
	}
}

// Guarantee: -run names scenarios, and one that is not there is an error.
func TestChoose(t *testing.T) {
	var names []string
	got, err := command.Choose(scenarios(), "slow,kill")
	for _, s := range got {
		names = append(names, s.Name)
	}
	if err != nil || !slices.Equal(names, []string{"slow", "kill"}) {
		t.Errorf("got %v, %v; want slow and kill", names, err)
	}
	if all, err := command.Choose(scenarios(), ""); err != nil || len(all) != len(scenarios()) {
		t.Errorf("got %d scenarios, %v; want all", len(all), err)
	}
	if _, err := command.Choose(scenarios(), "kill,nothing"); err == nil {
		t.Error("a scenario that is not there was accepted")
	}
}
