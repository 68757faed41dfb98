//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/keygate/keygate/bench/stats"
	"github.com/keygate/keygate/client"
)

// flapping measures requests while one target serves for a second, refuses for the next one, and so on.
func flapping(ctx context.Context, o options, dir string) ([]row, error) {
	const delay = 5 * time.Millisecond
	st, err := openStage(ctx, o, dir, &target{delay: delay, flap: time.Second}, &target{delay: delay}, &target{delay: delay})
	if err != nil {
		return nil, err
	}
	defer st.close()
	l := st.load(o.flapping)
	l.rate = steady
	got, err := l.run(ctx)
	if err != nil {
		return nil, err
	}
	each, sum, err := st.attempts(ctx)
	if err != nil {
		return nil, err
	}
	failed, all := got.failed(0)
	return []row{
		atMost(fmt.Sprintf("one of three flapping each second, 1,000/s, %v: failed, %%", o.flapping), "%.3f", percent(float64(failed), float64(all)), 0.1),
		atMost("the same: shares of the others, % from their mean", "%.1f", apart(each[1:]...), 20),
		only("the same: share of the one that flaps, % of the attempts", fmt.Sprintf("%.1f", percent(each[0], sum))),
	}, nil
}

// slowTarget measures requests with one target that takes 100 times as long as the others, and without it.
func slowTarget(ctx context.Context, o options, dir string) ([]row, error) {
	const delay = 10 * time.Millisecond
	measure := func(targets ...*target) (each []float64, sum float64, p99 time.Duration, err error) {
		st, err := openStage(ctx, o, dir, targets...)
		if err != nil {
			return nil, 0, 0, err
		}
		defer st.close()
		got, err := st.load(o.slow).run(ctx)
		if err != nil {
			return nil, 0, 0, err
		}
		if failed, all := got.failed(0); failed > 0 || all == 0 {
			return nil, 0, 0, fmt.Errorf("%d of %d requests failed", failed, all)
		}
		each, sum, err = st.attempts(ctx)
		return each, sum, got.quantile(0.99), err
	}
	_, _, without, err := measure(&target{delay: delay}, &target{delay: delay})
	if err != nil {
		return nil, err
	}
	each, sum, with, err := measure(&target{delay: 100 * delay}, &target{delay: delay}, &target{delay: delay})
	if err != nil {
		return nil, err
	}
	return []row{
		atMost(fmt.Sprintf("one takes %v, the others %v: its share, %% of its fair share", 100*delay, delay), "%.1f", percent(each[0]*float64(len(each)), sum), 5),
		atMost(fmt.Sprintf("the same: p99 of all ÷ without it (%.1f ms ÷ %.1f ms)", milliseconds(with), milliseconds(without)), "%.2f", with.Seconds()/without.Seconds(), 1.5),
	}, nil
}

// cost measures the CPU of a request with three targets and with one.
func cost(ctx context.Context, o options, dir string) ([]row, error) {
	st, err := openStage(ctx, o, dir, &target{}, &target{}, &target{})
	if err != nil {
		return nil, err
	}
	defer st.close()
	alone, err := st.open(ctx, "one", st.targets[:1])
	if err != nil {
		return nil, err
	}
	var figures [2][]float64 // of one target and of three, µs
	var more []float64
	for i := range o.rounds + 1 {
		var round [2]float64
		for k := range round {
			k := (i + k) % len(round) // each begins in every second round
			if round[k], err = st.cpu(ctx, []*client.Gateway{alone, st.gateway}[k], o.duration); err != nil {
				return nil, err
			}
		}
		if i == 0 {
			continue // it warms up
		}
		for k := range figures {
			figures[k] = append(figures[k], round[k])
		}
		more = append(more, round[1]-round[0])
	}
	return []row{
		only("CPU of a request with one target, µs, with the access log (median)", fmt.Sprintf("%.2f", stats.Median(figures[0]...))),
		only("the same with three", fmt.Sprintf("%.2f", stats.Median(figures[1]...))),
		atMost(fmt.Sprintf("median of the differences, pairs: %d (%.2f to %.2f)", len(more), stats.Quantile(0, more...), stats.Quantile(1, more...)), "%.2f", stats.Median(more...), 0.5),
	}, nil
}

// cpu returns the server's CPU time for each request of a load on a gateway, in µs.
func (st *stage) cpu(ctx context.Context, g *client.Gateway, d time.Duration) (float64, error) {
	l := st.load(d)
	l.host = g.Hostname
	before, err := st.server.CPU()
	if err != nil {
		return 0, err
	}
	got, err := l.run(ctx)
	if err != nil {
		return 0, err
	}
	after, err := st.server.CPU()
	if err != nil {
		return 0, err
	}
	if failed, all := got.failed(0); failed > 0 || all == 0 {
		return 0, fmt.Errorf("%d of %d requests failed", failed, all)
	}
	return (after - before).Seconds() * 1e6 / float64(len(got)), nil
}
