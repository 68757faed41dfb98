//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/keygate/keygate/client"
)

const (
	// manyStreams is how many responses without an end are open at a target that is drained: half of them over HTTP/1.1, and half
	// over HTTP/2.
	manyStreams = 500
	// sweepTime is how long after its deadline a stream may end: streams are looked at five times a second.
	sweepTime = 500 * time.Millisecond
	// streamQuery makes a target's response one without an end.
	streamQuery = "stream"
)

// stream is a response without an end, as its client sees it.
type stream struct {
	ended time.Time
	whole bool // it ended as if it were whole
}

// drained measures a target that is drained while it has 500 streams, and requests meanwhile.
func drained(ctx context.Context, o options, dir string) ([]row, error) {
	st, err := openStage(ctx, o, dir, &target{delay: 5 * time.Millisecond}, &target{delay: 5 * time.Millisecond}, &target{delay: 5 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer st.close()
	multiplexed, err := st.open(ctx, "multiplexed", "h2c", st.targets)
	if err != nil {
		return nil, err
	}
	d := &drain{stage: st, gateways: []*client.Gateway{st.gateway, multiplexed}}
	for _, g := range d.gateways {
		if _, err := st.server.Admin.UpdateGateway(ctx, g.GatewayID, client.GatewayPatch{DrainTimeout: client.Set(o.drain.String())}); err != nil {
			return nil, err
		}
		// By requests in flight, none would go to the target with the streams.
		if _, err := st.server.Admin.UpdateUpstream(ctx, g.GatewayID, "default", client.UpstreamPatch{Balance: client.Set("round_robin")}); err != nil {
			return nil, err
		}
	}
	// All streams are at the first target, and requests go to all.
	if err := d.set(ctx, true, st.targets[1:]...); err != nil {
		return nil, err
	}
	ended, err := d.openStreams(ctx)
	if err != nil {
		return nil, err
	}
	if err := d.set(ctx, false, st.targets[1:]...); err != nil {
		return nil, err
	}
	l := st.load(warmUp + o.drain + 2*time.Second)
	l.hosts, l.rate = []string{d.gateways[0].Hostname, d.gateways[1].Hostname}, steady
	var begun, acknowledged time.Time
	var before float64
	got, err := st.during(ctx, l, warmUp, func() (err error) {
		begun = time.Now()
		if err := d.set(ctx, true, st.targets[0]); err != nil {
			return err
		}
		acknowledged = time.Now()
		before, err = d.begunAt(ctx, st.targets[0])
		if err == nil && before <= manyStreams {
			err = fmt.Errorf("the target had %.0f requests before it was drained, want its streams and more", before)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	after, err := d.begunAt(ctx, st.targets[0])
	if err != nil {
		return nil, err
	}
	var last time.Time
	early, whole := 0, 0
	for _, s := range ended() {
		if s.ended.Before(begun.Add(o.drain)) {
			early++
		}
		if s.whole {
			whole++
		}
		if s.ended.After(last) {
			last = s.ended
		}
	}
	failed, all := got.failed(0)
	return []row{
		atMost(fmt.Sprintf("one drained with %d streams, `drain_timeout` %v: the last ended after, s", manyStreams, o.drain), "%.2f", last.Sub(acknowledged).Seconds(), (o.drain + sweepTime).Seconds()),
		none("the same: streams that ended before it had passed", early, manyStreams),
		none("the same: streams that ended as if they were whole", whole, manyStreams),
		none("the same: requests begun at it after the acknowledgement", int(after-before), all),
		none("the same: failed GETs", failed, all),
	}, nil
}

// drain is a stage with gateways of the same targets.
type drain struct {
	*stage
	gateways []*client.Gateway // over HTTP/1.1 and HTTP/2
}

// scheme returns the scheme of the targets of a gateway.
func (d *drain) scheme(g *client.Gateway) string {
	if g == d.gateways[0] {
		return "http"
	}
	return "h2c"
}

// set drains targets of both gateways, or ends that.
func (d *drain) set(ctx context.Context, drains bool, targets ...*target) error {
	for _, g := range d.gateways {
		for _, t := range targets {
			_, err := d.server.Admin.UpdateTarget(ctx, g.GatewayID, "default", d.scheme(g)+"://"+t.address, client.TargetPatch{Drain: client.Set(drains)})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// begunAt returns how many attempts have begun at a target.
func (d *drain) begunAt(ctx context.Context, t *target) (float64, error) {
	text, err := d.server.Metrics(ctx)
	return metric(text, "keygate_target_requests_total", t.label()), err
}

// openStreams opens streams, of both gateways in turn, and waits until each has begun. ended waits until all have ended, and
// returns them.
func (d *drain) openStreams(ctx context.Context) (ended func() []stream, err error) {
	all, begun := make([]stream, manyStreams), make(chan error, manyStreams)
	callers := make([]*http.Client, len(d.gateways))
	for i, g := range d.gateways {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(d.scheme(g) == "http")
		protocols.SetUnencryptedHTTP2(d.scheme(g) != "http")
		callers[i] = &http.Client{Transport: &http.Transport{Protocols: protocols}}
	}
	var running sync.WaitGroup
	for i := range all {
		running.Go(func() {
			k := i % len(callers)
			body, err := d.openStream(ctx, callers[k], d.gateways[k])
			begun <- err
			if err == nil {
				_, err = io.Copy(io.Discard, body)
				all[i] = stream{time.Now(), err == nil}
				_ = body.Close()
			}
		})
	}
	for range all {
		if err := <-begun; err != nil {
			return nil, fmt.Errorf("open a stream: %w", err)
		}
	}
	return func() []stream { running.Wait(); return all }, nil
}

// openStream opens a stream and returns its body, of which the first byte has arrived.
func (d *drain) openStream(ctx context.Context, c *http.Client, g *client.Gateway) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.server.Gateway+path(0)+"?"+streamQuery, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Host = g.Hostname
	req.Header.Set("Authorization", "Bearer "+d.key)
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		_, err = io.ReadFull(res.Body, make([]byte, 1))
	} else {
		err = fmt.Errorf("got status %d, want 200", res.StatusCode)
	}
	if err != nil {
		_ = res.Body.Close()
		return nil, err
	}
	return res.Body, nil
}
