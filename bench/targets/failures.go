//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keygate/keygate/client"
)

// warmUp is how long a load runs before something happens to a target.
const warmUp = time.Second

// kill measures requests while one target is killed, for one route and for 600.
func kill(ctx context.Context, o options, dir string) (rows []row, err error) {
	for _, routes := range []int{1, manyRoutes} {
		more, err := killWith(ctx, o, dir, routes)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func killWith(ctx context.Context, o options, dir string, routes int) ([]row, error) {
	const delay = 10 * time.Millisecond
	st, err := openStage(ctx, o, dir, &target{delay: delay}, &target{delay: delay}, &target{delay: delay})
	if err != nil {
		return nil, err
	}
	defer st.close()
	l := st.load(warmUp + o.kill)
	l.routes = routes
	victim := st.targets[0]
	var dead time.Time
	got, err := st.during(ctx, l, warmUp, func() error {
		victim.Kill()
		dead = time.Now()
		return nil
	})
	if err != nil {
		return nil, err
	}
	ejections, err := st.ejections(ctx, victim)
	if err != nil {
		return nil, err
	}
	if ejections == 0 {
		return nil, errors.New("the killed target was not ejected")
	}
	reached, err := st.reached(victim, dead)
	if err != nil {
		return nil, err
	}
	failed, all := got.failed(0)
	about := fmt.Sprintf("`kill -9` of one, %d routes", routes)
	if routes == 1 {
		about = "`kill -9` of one, 1 route"
	}
	return []row{
		none(about+": failed GETs", failed, all),
		atMost(fmt.Sprintf("the same: requests begun after it that reached it (times half-open: %.0f)", ejections-1), "%.0f", float64(reached), 5+ejections-1),
	}, nil
}

// refused measures requests while two of three targets refuse connections.
func refused(ctx context.Context, o options, dir string) ([]row, error) {
	const delay = 5 * time.Millisecond
	st, err := openStage(ctx, o, dir, &target{delay: delay}, &target{absent: true}, &target{absent: true})
	if err != nil {
		return nil, err
	}
	defer st.close()
	l := st.load(time.Second + o.refused)
	l.rate = steady
	got, err := l.run(ctx)
	if err != nil {
		return nil, err
	}
	failed, all := got.failed(time.Second)
	return []row{atMost("two of three refused, 1,000/s: failed after the first second, %", "%.3f", percent(float64(failed), float64(all)), 0.05)}, nil
}

// comesBack measures when a target serves again that was killed and started again: when a request tries it once its ejection is over,
// and with checks, which find it.
func comesBack(ctx context.Context, o options, dir string) ([]row, error) {
	const (
		trial    = 100 * time.Millisecond // until a request tries a target that is half-open
		interval = time.Second
		timeout  = 2 * time.Second
	)
	plain, err := backAfter(ctx, o, dir, nil, func(dead, _, at time.Time) row {
		return servedWithin("killed, and started again 3 s later: served after, s from its end", dead, at, base+trial)
	})
	if err != nil {
		return nil, err
	}
	checks := &client.HealthInput{Path: new("/"), Interval: new(interval.String()), Timeout: new(timeout.String())}
	checked, err := backAfter(ctx, o, dir, checks, func(_, started, at time.Time) row {
		return servedWithin("the same, with checks each second: served after, s from its second start", started, at, 2*interval+timeout)
	})
	return append(plain, checked...), err
}

// servedWithin returns a row about when something was served, which is zero for never, at most a time after from.
func servedWithin(about string, from, at time.Time, most time.Duration) row {
	if at.IsZero() {
		return row{about, "never", fmt.Sprintf("≤ %.2f", most.Seconds()), yes(false)}
	}
	return atMost(about, "%.2f", at.Sub(from).Seconds(), most.Seconds())
}

// backAfter kills a target, starts it again after 3 s, and returns the row of when it had ended, was started and first served, and that of
// requests that failed. Without checks they are nil.
func backAfter(ctx context.Context, o options, dir string, checks *client.HealthInput, served func(dead, started, at time.Time) row) ([]row, error) {
	const (
		delay = 5 * time.Millisecond
		away  = 3 * time.Second
	)
	st, err := openStage(ctx, o, dir, &target{delay: delay}, &target{delay: delay}, &target{delay: delay})
	if err != nil {
		return nil, err
	}
	defer st.close()
	if checks != nil {
		if _, err := st.server.Admin.UpdateUpstream(ctx, st.gateway.GatewayID, "default", client.UpstreamPatch{Health: client.Set(*checks)}); err != nil {
			return nil, err
		}
	}
	l := st.load(warmUp + base + away)
	l.rate = steady
	victim := st.targets[0]
	var dead, started time.Time
	got, err := st.during(ctx, l, warmUp, func() error {
		victim.Kill()
		dead = time.Now()
		if err := wait(ctx, away); err != nil {
			return err
		}
		started = time.Now()
		return victim.start(ctx, st.dir)
	})
	if err != nil {
		return nil, err
	}
	at, err := st.served(victim, started)
	if err != nil {
		return nil, err
	}
	failed, all := got.failed(0)
	return []row{served(dead, started, at), none("the same: failed GETs", failed, all)}, nil
}

// allDead measures the attempts at targets of which all are killed. Requests before that count too, since the budget of
// retries is a share of the requests of the last 10 s.
func allDead(ctx context.Context, o options, dir string) ([]row, error) {
	st, err := openStage(ctx, o, dir, &target{}, &target{}, &target{})
	if err != nil {
		return nil, err
	}
	defer st.close()
	l := st.load(warmUp + o.dead)
	l.rate = steady
	got, err := st.during(ctx, l, warmUp, func() error {
		for _, t := range st.targets {
			t.Kill()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	_, attempts, err := st.attempts(ctx)
	if err != nil {
		return nil, err
	}
	failed, all := got.failed(0)
	if failed == 0 || failed == all {
		return nil, fmt.Errorf("%d of %d requests failed; want all of those after the targets were killed, and none before", failed, all)
	}
	requests := float64(all)
	r := atMost("all killed, 1,000/s: attempts at the targets ÷ requests, from 1 s before", "%.3f", attempts/requests, (1.2*requests+3*l.duration.Seconds())/requests)
	r.bar += " (1.2 × the requests + 3/s)"
	return []row{r}, nil
}
