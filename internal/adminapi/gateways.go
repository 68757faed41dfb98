package adminapi

import (
	"net/http"
	"reflect"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

func (a *API) gatewayOperations() []operation {
	record := reflect.TypeFor[gatewayRecord]()
	return []operation{{
		id: "listGateways", method: http.MethodGet, path: "/v1/gateways", tag: "Gateways",
		summary: "List gateways", description: "Returns the gateways of the account, newest first.",
		query: pageParams(), success: http.StatusOK, result: reflect.TypeFor[list[gatewayRecord]](),
		run: a.listGateways,
	}, {
		id: "createGateway", method: http.MethodPost, path: "/v1/gateways", tag: "Gateways",
		summary:     "Create a gateway",
		description: "Creates a gateway in front of an upstream service. A spec given here becomes revision 1 and raises no event. Requests for the gateway carry its hostname; those for unknown hosts reach the default gateway.",
		body:        reflect.TypeFor[createGatewayRequest](), maxBody: maxDocument, replayable: true,
		success: http.StatusCreated, result: record, hasETag: true, hasLocation: true,
		run: a.createGateway,
	}, {
		id: "getGateway", method: http.MethodGet, path: "/v1/gateways/{gateway_id}", tag: "Gateways",
		summary: "Get a gateway", description: "Returns one gateway.",
		success: http.StatusOK, result: record, hasETag: true,
		run: a.getGateway,
	}, {
		id: "updateGateway", method: http.MethodPatch, path: "/v1/gateways/{gateway_id}", tag: "Gateways",
		summary: "Update a gateway", description: "Changes the given fields; null clears an optional field.",
		body: reflect.TypeFor[updateGatewayRequest](), ifMatch: true,
		success: http.StatusOK, result: record, hasETag: true, errors: []int{http.StatusConflict},
		run: a.updateGateway,
	}, {
		id: "deleteGateway", method: http.MethodDelete, path: "/v1/gateways/{gateway_id}", tag: "Gateways",
		summary: "Delete a gateway", description: "Deletes the gateway and its routes, and revokes the keys restricted to it. After the default gateway was deleted there is none until one is set, or a single one is left. Returns the record as it was before.",
		ifMatch: true, success: http.StatusOK, result: record,
		run: a.deleteGateway,
	}}
}

func (a *API) listGateways(c *call) (response, error) {
	return page(c, "gateways", "", func(p control.Page) ([]gateway.Gateway, error) {
		return a.cfg.Control.Gateways(c.ctx, &c.caller, p)
	}, func(g *gateway.Gateway) (string, gatewayRecord) { return g.ID, presentGateway(g) })
}

func (a *API) getGateway(c *call) (response, error) {
	g, err := a.cfg.Control.Gateway(c.ctx, &c.caller, c.params["gateway_id"])
	if err != nil {
		return response{}, err
	}
	return withETag(presentGateway(g), g.Version), nil
}

func (a *API) createGateway(c *call) (response, error) {
	var req createGatewayRequest
	if err := c.decode(&req); err != nil {
		return response{}, err
	}
	p := control.GatewayPatch{
		Name: setTo(&req.Name), Hostname: setTo(req.Hostname), Timeout: setTo(req.Timeout), MaxBodyBytes: setTo(req.MaxBodyBytes),
		Default:    setTo(req.Default),
		KeyHeaders: req.KeyHeaders.Optional, AllowEncodedSlashes: req.AllowEncodedSlashes.Optional, Upstream: req.patch(),
	}
	p.Upstream.URL = setTo(&req.UpstreamURL)
	if l := req.GlobalRateLimit; l != nil {
		p.GlobalLimit = c.globalLimit(l)
	}
	if req.CORS != nil {
		cors := req.CORS.cors()
		p.CORS = setTo(&cors)
	}
	if req.Spec != nil {
		if err := c.takeDocumentPlace(); err != nil {
			return response{}, err
		}
	}
	present := func(g *gateway.Gateway) response {
		return withETag(presentGateway(g), g.Version).created("/v1/gateways/" + g.ID)
	}
	g, err := a.cfg.Control.CreateGateway(withIdempotency(c, present), &c.caller, p, value(req.Spec))
	if err != nil {
		return response{}, err
	}
	return present(g), nil
}

// globalLimit returns the limit to set. If it is invalid, globalLimit refuses the call.
func (c *call) globalLimit(l *globalLimitInput) control.Optional[ratelimit.Config] {
	limit, err := l.config()
	if err != nil {
		c.refuse(fault.Prefixed("global_rate_limit", err))
		return control.Optional[ratelimit.Config]{}
	}
	return setTo(&limit)
}

func (a *API) updateGateway(c *call) (response, error) {
	var req updateGatewayRequest
	if err := c.decode(&req); err != nil {
		return response{}, err
	}
	p := control.GatewayPatch{
		Name: setTo(req.Name), Hostname: req.Hostname.Optional, Timeout: req.Timeout.Optional, MaxBodyBytes: req.MaxBodyBytes.Optional,
		Default:    setTo(req.Default),
		KeyHeaders: req.KeyHeaders.Optional, AllowEncodedSlashes: req.AllowEncodedSlashes.Optional, Upstream: req.patch(),
	}
	p.Upstream.URL = setTo(req.UpstreamURL)
	switch l := &req.GlobalRateLimit; {
	case l.Null:
		p.GlobalLimit.Present, p.GlobalLimit.Null = true, true
	case l.Present:
		p.GlobalLimit = c.globalLimit(&l.Value)
	}
	p.CORS.Present, p.CORS.Null = req.CORS.Present, req.CORS.Null
	if p.CORS.Present && !p.CORS.Null {
		p.CORS.Value = req.CORS.Value.cors()
	}
	g, err := a.cfg.Control.UpdateGateway(c.ctx, &c.caller, c.params["gateway_id"], p, c.match)
	if err != nil {
		return response{}, err
	}
	return withETag(presentGateway(g), g.Version), nil
}

func (a *API) deleteGateway(c *call) (response, error) {
	g, err := a.cfg.Control.DeleteGateway(c.ctx, &c.caller, c.params["gateway_id"], c.match)
	if err != nil {
		return response{}, err
	}
	return ok(presentGateway(g)), nil
}
