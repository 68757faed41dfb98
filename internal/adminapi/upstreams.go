package adminapi

import (
	"net/http"
	"net/url"
	"reflect"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

type addTargetRequest struct {
	TargetInput
	Headers   optional[map[string]string] `json:"headers,omitempty" maxProperties:"16" doc:"Headers of the upstream, given again: needed if the upstream has headers and the target is of another origin, unless a certificate for host proves that it is the same service. Replaces all of them; null removes them."`
	ClientKey optional[string]            `json:"client_key,omitempty" minLength:"1" doc:"Private key of the client certificate of the upstream, in PEM, given again: needed as headers are."`
	Health    *targetHealthInput          `json:"health,omitempty" doc:"What checks of the upstream send, given again."`
}

// targetHealthInput is what a new target gives of the checks of its upstream.
type targetHealthInput struct {
	_       struct{}                    `nullable:"true"`
	Headers optional[map[string]string] `json:"headers,omitempty" maxProperties:"16" doc:"Headers of checks, given again: needed as headers are. Replaces all of them; null removes them."`
}

type updateTargetRequest struct {
	Weight optional[int]  `json:"weight,omitempty" minimum:"1" maximum:"1000" doc:"Share of the requests, compared with the weights of the other targets; null for 1." example:"2"`
	Backup optional[bool] `json:"backup,omitempty" doc:"true makes the target take part only while no other one does; null for false." example:"false"`
	Drain  optional[bool] `json:"drain,omitempty" doc:"true takes the target away: it gets no more requests once the call has returned; null for false." example:"true"`

	Resolve optional[string] `json:"resolve,omitempty" enum:"none,a,srv" doc:"How the name in the URL is looked up: none, at each connect; a, every refresh, and each of its addresses is an address of the target; srv, every refresh, and each SRV record is one; null for none." example:"a"`
}

const (
	upstreamsPath = "/v1/gateways/{gateway_id}/upstreams"
	upstreamPath  = upstreamsPath + "/{upstream}"
	targetsPath   = upstreamPath + "/targets"
)

func (a *API) upstreamOperations() []operation {
	record := reflect.TypeFor[upstreamRecord]()
	const secrets = " With several targets, or a name other than default, the headers, those of checks and the client key are for the service that they were given for: " +
		"with https targets and a name for host, what a certificate proves to be host, else the set of origins. " +
		"A change that adds an origin, or changes host, ca or the scheme, gives them again, or is a 422."
	const drains = " Once the call has returned, no node sends a request to a target that drains or was removed. With drain, the call also waits until what was in flight there has ended. If the target takes part again meanwhile, the response is a 409."
	const inFlight = "The change is in force, but requests are still in flight at the target."
	return []operation{{
		id: "listUpstreams", method: http.MethodGet, path: upstreamsPath, tag: "Upstreams",
		summary: "List upstreams", description: "Returns the upstreams of a gateway: the one with the name default, and then the others by their names.",
		query: pageParams(), success: http.StatusOK, result: reflect.TypeFor[list[upstreamRecord]](),
		run: a.listUpstreams,
	}, {
		id: "getUpstream", method: http.MethodGet, path: upstreamPath, tag: "Upstreams",
		summary: "Get an upstream", description: "Returns one upstream, with the state of its targets on each node: on the node that responds as it is now, on others as they have reported it. They report every two seconds what drains, and what has changed its state. At most 2,560 entries are listed. The ETag is that of the gateway, and says nothing about the state.",
		success: http.StatusOK, result: record, hasETag: true, hasState: true,
		run: a.getUpstream,
	}, {
		id: "putUpstream", method: http.MethodPut, path: upstreamPath, tag: "Upstreams",
		summary:     "Create or replace an upstream",
		description: "Creates an upstream, or replaces the one with the name: absent fields get their defaults, and headers are removed. The targets of an upstream that exists stay if they are absent." + secrets,
		body:        reflect.TypeFor[upstreamRequest](), ifMatch: true,
		success: http.StatusCreated, result: record, hasETag: true, hasLocation: true, alsoOK: "The upstream was replaced.", errors: []int{http.StatusConflict},
		run: takes(a.putUpstream),
	}, {
		id: "updateUpstream", method: http.MethodPatch, path: upstreamPath, tag: "Upstreams",
		summary: "Update an upstream", description: "Changes the given fields; null restores a default." + secrets,
		body: reflect.TypeFor[upstreamRequest](), ifMatch: true,
		success: http.StatusOK, result: record, hasETag: true, errors: []int{http.StatusConflict},
		run: takes(a.updateUpstream),
	}, {
		id: "deleteUpstream", method: http.MethodDelete, path: upstreamPath, tag: "Upstreams",
		summary: "Delete an upstream", description: "Deletes an upstream. The one with the name default, and one that a route names, is a 409. Returns the record as it was before.",
		ifMatch: true, success: http.StatusOK, result: record, errors: []int{http.StatusConflict},
		run: a.deleteUpstream,
	}, {
		id: "addTarget", method: http.MethodPost, path: targetsPath, tag: "Upstreams",
		summary: "Add a target", description: "Adds a target to an upstream, and returns the upstream. A target that the upstream has is a 409." + secrets,
		body: reflect.TypeFor[addTargetRequest](), ifMatch: true, replayable: true,
		success: http.StatusCreated, result: record, hasETag: true, hasLocation: true, errors: []int{http.StatusConflict},
		run: takes(a.addTarget),
	}, {
		id: "updateTarget", method: http.MethodPatch, path: targetsPath, tag: "Upstreams",
		summary: "Update a target", description: "Changes the given fields of a target, and returns the upstream. null restores a default." + drains,
		query: []queryParam{targetParam(), drainParam()}, body: reflect.TypeFor[updateTargetRequest](), ifMatch: true,
		success: http.StatusOK, result: record, hasETag: true, waits: inFlight, errors: []int{http.StatusConflict},
		run: takes(a.updateTarget),
	}, {
		id: "deleteTarget", method: http.MethodDelete, path: targetsPath, tag: "Upstreams",
		summary: "Remove a target", description: "Removes a target from an upstream, and returns the upstream. The last one is a 409." + drains,
		query: []queryParam{targetParam(), drainParam()}, ifMatch: true, success: http.StatusOK, result: record, hasETag: true, waits: inFlight, errors: []int{http.StatusConflict},
		run: a.deleteTarget,
	}, {
		id: "returnTarget", method: http.MethodPost, path: targetsPath + "/return", tag: "Upstreams",
		summary: "Return a target", description: "Ends an ejection of a target by hand, on every node, and returns the upstream. If the target is not ejected, nothing happens.",
		query: []queryParam{targetParam()}, replayable: true, success: http.StatusOK, result: record, hasETag: true,
		run: a.returnTarget,
	}}
}

// targetParam is the query parameter that says which target a call is about.
func targetParam() queryParam {
	return queryParam{name: "url", doc: "URL of the target.", schema: textSchema(), example: "https://10.0.0.1:8443", required: true}
}

func upstreamResponse(u *control.NamedUpstream) response {
	record := presentUpstream(u.Gateway, u.Upstream)
	if u.Status != nil {
		record.addStatus(u.Status)
	}
	res := withETag(record, u.Gateway.Version)
	if u.Created {
		return res.created(pathOfUpstream(u))
	}
	return res
}

// pathOfUpstream returns the path of the upstream's record.
func pathOfUpstream(u *control.NamedUpstream) string {
	return "/v1/gateways/" + u.Gateway.ID + "/upstreams/" + u.FullName()
}

func (a *API) listUpstreams(c *call) (response, error) {
	gatewayID := c.params["gateway_id"]
	return page(c, "upstreams", gatewayID, func(p control.Page) ([]control.NamedUpstream, error) {
		return a.cfg.Control.Upstreams(c.ctx, &c.actor, gatewayID, p)
	}, func(u *control.NamedUpstream) (string, upstreamRecord) {
		return u.FullName(), presentUpstream(u.Gateway, u.Upstream)
	})
}

func (a *API) getUpstream(c *call) (response, error) {
	return respond(upstreamResponse)(a.cfg.Control.Upstream(c.ctx, &c.actor, c.params["gateway_id"], c.params["upstream"]))
}

func (a *API) putUpstream(c *call, body gatewayBody) (response, error) {
	p, err := c.upstreamPatch(c.params["upstream"], "", withoutNull(body))
	if err != nil {
		return response{}, err
	}
	return respond(upstreamResponse)(a.cfg.Control.PutUpstream(c.ctx, &c.actor, c.params["gateway_id"], p, c.match))
}

// withoutNull returns the fields of body that are not null, for a call that gives all others their defaults.
func withoutNull(body gatewayBody) gatewayBody {
	given := gatewayBody{}
	for name, content := range body {
		if content.Kind() != 'n' {
			given[name] = content
		}
	}
	return given
}

func (a *API) updateUpstream(c *call, body gatewayBody) (response, error) {
	p, err := c.upstreamPatch(c.params["upstream"], "", body)
	if err != nil {
		return response{}, err
	}
	return respond(upstreamResponse)(a.cfg.Control.PatchUpstream(c.ctx, &c.actor, c.params["gateway_id"], p, c.match))
}

func (a *API) deleteUpstream(c *call) (response, error) {
	show := show(func(u *control.NamedUpstream) upstreamRecord { return presentUpstream(u.Gateway, u.Upstream) })
	return show(a.cfg.Control.DeleteUpstream(c.ctx, &c.actor, c.params["gateway_id"], c.params["upstream"], c.match))
}

func (a *API) addTarget(c *call, req addTargetRequest) (response, error) {
	in := control.NewTarget{Target: req.target(), Headers: req.Headers.Optional, ClientKey: req.ClientKey.Optional}
	if req.Health != nil {
		in.HealthHeaders = req.Health.Headers.Optional
	}
	present := func(u *control.NamedUpstream) response {
		return upstreamResponse(u).created(pathOfUpstream(u) + "/targets?url=" + url.QueryEscape(in.URL))
	}
	return respond(present)(a.cfg.Control.AddTarget(withIdempotency(c, present), &c.actor, c.params["gateway_id"], c.params["upstream"], in, c.match))
}

func (a *API) updateTarget(c *call, req updateTargetRequest) (response, error) {
	p := control.TargetPatch{Weight: req.Weight.Optional, Backup: req.Backup.Optional, Drain: req.Drain.Optional, Awaited: c.query.Has("drain")}
	p.Resolve.Present, p.Resolve.Null, p.Resolve.Value = req.Resolve.Present, req.Resolve.Null, gateway.Resolve(req.Resolve.Value)
	return a.waitDrained(c, func() (*control.NamedUpstream, error) {
		return a.cfg.Control.PatchTarget(c.ctx, &c.actor, c.params["gateway_id"], c.params["upstream"], c.query.Get("url"), p, c.match)
	})
}

func (a *API) deleteTarget(c *call) (response, error) {
	return a.waitDrained(c, func() (*control.NamedUpstream, error) {
		return a.cfg.Control.DeleteTarget(c.ctx, &c.actor, c.params["gateway_id"], c.params["upstream"], c.query.Get("url"), c.match)
	})
}

// routeUpstream returns the name of the upstream of a route.
func routeUpstream(r *gateway.Route) string {
	if r.Upstream == "" {
		return gateway.DefaultUpstream
	}
	return r.Upstream
}
