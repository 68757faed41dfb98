package admit

import (
	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/snapshot"
)

// handle sets what the route does with the request beside forwarding it as it came. It reports false if the verdict is a
// refusal.
func (d *decision) handle(g *snapshot.Gateway, r *snapshot.Route) bool {
	v, h := d.verdict, r.Handling()
	v.Checks = g.Checks(r)
	v.requestEdits.Gateway, v.responseEdits.Gateway = g.RequestHeaders, g.ResponseHeaders
	if h == nil {
		return true
	}
	v.requestEdits.Route, v.responseEdits.Route = h.RequestHeaders, h.ResponseHeaders
	if v.Response = h.Response; h.Response != nil || h.Strip == 0 {
		return true
	}
	rest, ok := gateway.StripSegments(v.Path, h.Strip)
	if !ok {
		v.refuse(accesslog.Malformed, fault.InvalidRequest, gateway.EncodedSlashFirst)
		return false
	}
	v.stripped = rest
	return true
}

// AppendLocation appends the value of Location of a verdict with the action Respond whose Response is a redirect.
func (v *Verdict) AppendLocation(dst []byte) []byte {
	r := v.Response.Redirect
	dst = append(dst, r.To...)
	if r.KeepPath {
		dst = append(dst, v.Path...)
	}
	if r.KeepQuery && v.hasQuery {
		dst = v.AppendQuery(append(dst, '?'))
	}
	return dst
}
