package control_test

import (
	"context"
	"errors"
	"strings"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

const emptySpec = `{"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": {}}`

// spec is an OpenAPI document with a GET of each path, which may have the rate
// limit after a space.
func spec(paths ...string) []byte {
	var b strings.Builder
	b.WriteString("openapi: 3.1.0\ninfo: {title: t, version: '1'}\npaths:\n")
	if len(paths) == 0 {
		b.WriteString("  {}\n")
	}
	for _, p := range paths {
		path, limit, limited := strings.Cut(p, " ")
		b.WriteString("  " + path + ":\n    get:\n      responses: {}\n")
		if limited {
			b.WriteString("      x-keygate-rate-limit: {sustained: " + limit + "}\n")
		}
	}
	return []byte(b.String())
}

func (h *harness) gateway(c *control.Actor) *gateway.Gateway {
	h.tb.Helper()
	return must[*gateway.Gateway](h)(h.CreateGateway(ctx(), c, gateway.Patch{
		Name: value("orders"), UpstreamURL: value("https://orders.internal/base"),
	}, ""))
}

// CreateGateway creates a gateway, whose name another one may have.
func (h *harness) CreateGateway(ctx context.Context, c *control.Actor, p gateway.Patch, spec string) (*gateway.Gateway, error) {
	return h.CreateGatewayFrom(ctx, c, control.NewGateway{Settings: p, Spec: spec, AllowDuplicate: true})
}

// UpdateGateway changes a gateway, which may get a name that another one has.
func (h *harness) UpdateGateway(ctx context.Context, c *control.Actor, gatewayID string, p gateway.Patch, m control.Match) (*gateway.Gateway, error) {
	return h.Service.UpdateGateway(ctx, c, gatewayID, control.GatewayUpdate{Patch: p, AllowDuplicate: true}, m)
}

// newGateway is what a creation must give.
func newGateway(upstreamURL string) gateway.Patch {
	return gateway.Patch{Name: value("n"), UpstreamURL: value(upstreamURL)}
}

func (h *harness) route(c *control.Actor, gatewayID, path string, methods ...string) *gateway.Route {
	h.tb.Helper()
	return must[*gateway.Route](h)(h.CreateRoute(ctx(), c, gatewayID, routeSpec(path, methods...)))
}

func routeSpec(path string, methods ...string) gateway.RouteSpec {
	return gateway.RouteSpec{Path: path, Methods: methods}
}

func rate(text string) ratelimit.Rate {
	var r ratelimit.Rate
	if err := r.UnmarshalText([]byte(text)); err != nil {
		panic(err)
	}
	return r
}

// keyRate returns the limit of a key that is given as a rate.
func keyRate(text string) control.KeyLimitInput { return control.KeyLimitInput{Rate: text} }

func authOf(err error) fault.AuthCode {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Auth
	}
	return ""
}
