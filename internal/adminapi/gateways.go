package adminapi

import (
	"net/http"
	"net/url"
	"reflect"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

func (a *API) gatewayOperations() []operation {
	record := reflect.TypeFor[gatewayRecord]()
	return []operation{{
		id: "listGateways", method: http.MethodGet, path: "/v1/gateways", tag: "Gateways",
		summary: "List gateways", description: "Returns the gateways of the account, newest first.",
		query:   append(gatewayFilters(), pageParams()...),
		success: http.StatusOK, result: reflect.TypeFor[list[gatewayRecord]](),
		run: a.listGateways,
	}, {
		id: "createGateway", method: http.MethodPost, path: "/v1/gateways", tag: "Gateways",
		summary:     "Create a gateway",
		description: "Creates a gateway in front of an upstream service. A spec or configuration file given here becomes revision 1 and raises no event; either all of it is created or nothing. With dry_run=true, the response is a 200 with what would be created, in the form of a push. Requests for the gateway carry its hostname; those for unknown hosts reach the default gateway.",
		query:       []queryParam{dryRunParam()},
		body:        reflect.TypeFor[createGatewayRequest](), maxBody: maxDocument, replayable: true,
		success: http.StatusCreated, result: record, hasETag: true, hasLocation: true, dryRun: reflect.TypeFor[pushRecord](), errors: []int{http.StatusConflict},
		run: takes(a.createGateway),
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
		run: takes(a.updateGateway),
	}, {
		id: "deleteGateway", method: http.MethodDelete, path: "/v1/gateways/{gateway_id}", tag: "Gateways",
		summary: "Delete a gateway", description: "Deletes the gateway and its routes, and revokes the keys restricted to it. After the default gateway was deleted there is none until one is set, or a single one is left. Returns the record as it was before.",
		ifMatch: true, success: http.StatusOK, result: record,
		run: a.deleteGateway,
	}}
}

func gatewayFilters() []queryParam {
	return []queryParam{
		{name: "q", doc: "Only gateways whose name, hostname or URL of a target contains this text.", schema: textSchema(), example: "orders"},
	}
}

func (a *API) listGateways(c *call) (response, error) {
	filter := control.GatewayFilter{Query: c.query.Get("q")}
	return page(c, "gateways", url.Values{"q": {filter.Query}}.Encode(), func(p control.Page) ([]gateway.Gateway, error) {
		list := func() ([]gateway.Gateway, error) { return a.cfg.Control.Gateways(c.ctx, &c.actor, filter, p) }
		if filter == (control.GatewayFilter{}) {
			return list()
		}
		return searching(c, list)
	}, func(g *gateway.Gateway) (string, gatewayRecord) { return g.ID, presentGateway(g) })
}

func gatewayResponse(g *gateway.Gateway) response { return withETag(presentGateway(g), g.Version) }

func (a *API) getGateway(c *call) (response, error) {
	return respond(gatewayResponse)(a.cfg.Control.Gateway(c.ctx, &c.actor, c.params["gateway_id"]))
}

func (a *API) createGateway(c *call, body gatewayBody) (response, error) {
	in, err := c.newGateway(body)
	if err != nil {
		return response{}, err
	}
	if in.Spec != "" || in.Config != "" {
		if err := c.takeDocumentSlot(); err != nil {
			return response{}, err
		}
	}
	if c.query.Get("dry_run") == "true" {
		return show(presentPush)(a.cfg.Control.PreviewGateway(c.ctx, &c.actor, in))
	}
	present := func(g *gateway.Gateway) response {
		return gatewayResponse(g).created("/v1/gateways/" + g.ID)
	}
	g, err := a.cfg.Control.CreateGatewayFrom(withIdempotency(c, present), &c.actor, in)
	if err != nil {
		return response{}, err
	}
	return withReach(c, present(g), g), nil
}

// withReach returns res, whose body is the record of g, with a warning if the upstream of g cannot be reached.
func withReach(c *call, res response, g *gateway.Gateway) response {
	record := presentGateway(g)
	record.Warnings = c.unreachable(g.ID)
	res.body = record
	return res
}

// unreachable returns a warning if the upstream of a gateway cannot be reached. It returns none if too many are being
// tried.
func (c *call) unreachable(gatewayID string) []string {
	if c.api.cfg.Reach == nil {
		return nil
	}
	release, err := c.api.bounds.reaches.Take(c.ctx, c.principal.Account.ID)
	if err != nil {
		return nil
	}
	defer release()
	if why := c.api.cfg.Reach(c.ctx, gatewayID); why != "" {
		return []string{"upstream_url cannot be reached now: " + why}
	}
	return nil
}

// newGateway returns the creation that a body describes.
func (c *call) newGateway(body gatewayBody) (in control.NewGateway, err error) {
	if in.Spec, err = body.text("spec"); err != nil {
		return in, err
	}
	if in.Config, err = body.text("config"); err != nil {
		return in, err
	}
	if in.AllowDuplicate, err = body.allowsDuplicate(); err != nil {
		return in, err
	}
	list, err := c.upstreams(body["upstreams"])
	if err != nil {
		return in, err
	}
	if body["config"].Kind() != '"' {
		c.refuse(c.required("name"))
		if !hasDefault(list.Value) {
			c.refuse(c.required("upstream_url"))
		}
	}
	if in.DefaultPlanID, err = body.defaultPlanID(); err != nil {
		return in, err
	}
	in.Settings, err = c.settings(body, true)
	in.Settings.Upstreams = list
	return in, err
}

// required returns the error of a field that is absent; nil otherwise.
func (c *call) required(field string) error {
	if _, given := c.order[field]; given {
		return nil
	}
	return fault.Invalid(field, "is required: add it")
}

func (a *API) updateGateway(c *call, body gatewayBody) (response, error) {
	var p control.GatewayUpdate
	var err error
	if p.Patch, err = c.settings(body, false); err != nil {
		return response{}, err
	}
	if p.AllowDuplicate, err = body.allowsDuplicate(); err != nil {
		return response{}, err
	}
	if p.DefaultPlanID, err = body.defaultPlanID(); err != nil {
		return response{}, err
	}
	g, err := a.cfg.Control.UpdateGateway(c.ctx, &c.actor, c.params["gateway_id"], p, c.match)
	switch {
	case err != nil:
		return response{}, err
	case p.UpstreamURL.Present:
		return withReach(c, gatewayResponse(g), g), nil
	}
	return gatewayResponse(g), nil
}

func (a *API) deleteGateway(c *call) (response, error) {
	return show(presentGateway)(a.cfg.Control.DeleteGateway(c.ctx, &c.actor, c.params["gateway_id"], c.match))
}
