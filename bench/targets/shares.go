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

// costs are the kinds of gateways whose requests are compared, by the number of targets and services.
const (
	oneTarget = iota // of one service
	spread           // one of three services for each of three gateways
	together         // three services, with checks and ejection
	costKinds
)

// cost measures the CPU of a request with three targets, with one, and with one of three for each of three gateways: a server that
// exchanges bytes with three processes in place of one has more to do, whoever chooses between them.
func cost(ctx context.Context, o options, dir string) ([]row, error) {
	st, err := openStage(ctx, o, dir, &target{}, &target{}, &target{})
	if err != nil {
		return nil, err
	}
	defer st.close()
	check := client.HealthInput{Path: new("/healthz")}
	_, err = st.server.Admin.UpdateUpstream(ctx, st.gateway.GatewayID, "default", client.UpstreamPatch{Health: client.Set(check)})
	if err != nil {
		return nil, err
	}
	hosts := [costKinds][]string{together: {st.gateway.Hostname}}
	for i := range st.targets {
		g, err := st.open(ctx, fmt.Sprintf("one%d", i), "http", st.targets[i:i+1])
		if err != nil {
			return nil, err
		}
		hosts[spread] = append(hosts[spread], g.Hostname)
	}
	hosts[oneTarget] = hosts[spread][:1]
	var figures [costKinds][]float64 // µs
	var more, moreChosen []float64
	for i := range o.rounds + 1 {
		var round [costKinds]float64
		for k := range round {
			k := (i + k) % len(round) // each begins in every third round
			if round[k], err = st.cpu(ctx, hosts[k], o.duration); err != nil {
				return nil, err
			}
		}
		if i == 0 {
			continue // it warms up
		}
		for k := range figures {
			figures[k] = append(figures[k], round[k])
		}
		more = append(more, round[together]-round[oneTarget])
		moreChosen = append(moreChosen, round[together]-round[spread])
	}
	median := func(k int) string { return fmt.Sprintf("%.2f", stats.Median(figures[k]...)) }
	difference := func(what string, d []float64) string {
		return fmt.Sprintf("%s: median of the differences, rounds: %d (%.2f to %.2f)", what, len(d), stats.Quantile(0, d...), stats.Quantile(1, d...))
	}
	return []row{
		only("CPU of a request with one target, µs, with the access log (median)", median(oneTarget)),
		only("the same with three gateways, each with one of three targets", median(spread)),
		only("the same with three targets, checks and ejection", median(together)),
		atMost(difference("three targets against one", more), "%.2f", stats.Median(more...), 0.5),
		atMost(difference("three targets against one for each of three gateways", moreChosen), "%.2f", stats.Median(moreChosen...), 0.5),
	}, nil
}

// cpu returns the server's CPU time for each request of a load on gateways, in µs.
func (st *stage) cpu(ctx context.Context, hosts []string, d time.Duration) (float64, error) {
	l := st.load(d)
	l.hosts = hosts
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
