package control_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/snapshot"
	"github.com/keygate/keygate/internal/store/sqlite/sqlitetest"
)

// BenchmarkSmallChange changes the limit of one route, and a gateway's name, until the change is in force,
// with gateways of several sizes. Without the store's wait for the disk, the cost must not depend on the size.
func BenchmarkSmallChange(b *testing.B) {
	for _, routes := range []int{1000, 10_000, 100_000} {
		h := openHarness(b, sqlitetest.Path(b))
		b.Cleanup(h.close)
		reserver, err := ratelimit.NewReserver(ratelimit.ReserverConfig{Store: h.db, Now: time.Now})
		h.must(err)
		start := time.Now()
		follower, err := snapshot.New(snapshot.Config{Source: h.db, Reserver: reserver, GatewayDomain: domain, Now: func() ratelimit.Instant {
			return ratelimit.Instant{Mono: int64(time.Since(start)), Wall: time.Now().UnixNano()}
		}})
		h.must(err)
		h.must(follower.Load(ctx()))
		h.pub.follow = follower.CatchUp
		caller := h.caller("acme", "admin")
		g := h.gateway(caller)
		var doc bytes.Buffer
		doc.WriteString(`{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{`)
		for i := range routes {
			if i > 0 {
				doc.WriteByte(',')
			}
			fmt.Fprintf(&doc, `"/area%d/things%d/{id}":{"get":{}}`, i/100, i)
		}
		doc.WriteString(`}}`)
		_, err = h.PushSpec(ctx(), caller, g.ID, doc.Bytes(), false, nil)
		h.must(err)
		r := h.routes(caller, g.ID)[0]
		b.Run(fmt.Sprintf("limit/routes=%d", routes), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				_, err := h.UpdateRouteLimit(ctx(), caller, g.ID, r.ID, control.LimitPatch{RateLimit: control.Optional[control.RateLimitPatch]{
					Present: true, Value: control.RateLimitPatch{Sustained: value(fmt.Sprintf("%d/s", 1+i%9))},
				}}, nil)
				h.must(err)
			}
		})
		b.Run(fmt.Sprintf("name/routes=%d", routes), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				_, err := h.UpdateGateway(ctx(), caller, g.ID, gateway.Patch{Name: value(fmt.Sprint("name", i))}, nil)
				h.must(err)
			}
		})
	}
}
