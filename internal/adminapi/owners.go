package adminapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/owner"
)

type createOwnerRequest struct {
	ExternalID string            `json:"external_id" minLength:"1" maxLength:"255" doc:"Your identifier of the owner, in printable ASCII: the owner of its keys. It is unique in the account and never changes." example:"customer-42"`
	Name       *string           `json:"name,omitempty" nullable:"true" minLength:"1" maxLength:"255" doc:"Display name." example:"Acme Corporation"`
	PlanID     *string           `json:"plan_id,omitempty" nullable:"true" minLength:"1" doc:"Plan of the owner." example:"plan_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Plan       *string           `json:"plan,omitempty" nullable:"true" minLength:"1" doc:"Name of the plan of the owner, in place of plan_id." example:"free"`
	Metadata   map[string]string `json:"metadata,omitempty" nullable:"true" maxProperties:"16" doc:"Key-value pairs of your own. Keygate does not interpret them."`
	TimeZone   *string           `json:"time_zone,omitempty" nullable:"true" minLength:"1" maxLength:"64" doc:"IANA name of the time zone of the owner's calendar windows. Default: that of the plan." example:"Europe/Berlin"`
	AnchorDay  *int              `json:"anchor_day,omitempty" nullable:"true" minimum:"1" maximum:"28" doc:"Day on which the owner's months begin. Default: that of the plan." example:"15"`
}

type updateOwnerRequest struct {
	Name      optional[string]            `json:"name,omitempty" minLength:"1" maxLength:"255" doc:"Display name; null removes it." example:"Acme Corporation"`
	PlanID    optional[string]            `json:"plan_id,omitempty" minLength:"1" doc:"Plan of the owner; null for none." example:"plan_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Plan      optional[string]            `json:"plan,omitempty" minLength:"1" doc:"Name of the plan of the owner, in place of plan_id; null for none." example:"free"`
	State     *string                     `json:"state,omitempty" enum:"active,suspended" doc:"suspended makes gateways refuse the owner's keys before the response is sent; active resumes the owner."`
	Metadata  optional[map[string]string] `json:"metadata,omitempty" maxProperties:"16" doc:"Key-value pairs of your own. Replaces all of them; null removes them."`
	TimeZone  optional[string]            `json:"time_zone,omitempty" minLength:"1" maxLength:"64" doc:"IANA name of the time zone of the owner's calendar windows; null for that of the plan." example:"Europe/Berlin"`
	AnchorDay optional[int]               `json:"anchor_day,omitempty" minimum:"1" maximum:"28" doc:"Day on which the owner's months begin; null for that of the plan." example:"15"`
}

type ownerRecord struct {
	OwnerID    string            `json:"owner_id" doc:"Identifier of the owner." example:"own_01jz8y5c3te9b8r2m6q4v7x0aa"`
	ExternalID string            `json:"external_id" doc:"Your identifier of the owner, which its keys have as owner." example:"customer-42"`
	Name       *string           `json:"name" doc:"Display name; null if it has none." example:"Acme Corporation"`
	PlanID     *string           `json:"plan_id" doc:"Plan of the owner; null for none." example:"plan_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Plan       *string           `json:"plan" doc:"Name of that plan; null for none." example:"free"`
	State      string            `json:"state" enum:"active,suspended" doc:"State of the owner. Gateways refuse the keys of a suspended owner with a 403, whose code is owner_suspended. The keys keep their own state."`
	Metadata   map[string]string `json:"metadata" doc:"Key-value pairs of your own. Keygate does not interpret them."`
	TimeZone   *string           `json:"time_zone" doc:"IANA name of the time zone of the owner's calendar windows; null for that of the plan." example:"Europe/Berlin"`
	AnchorDay  *int64            `json:"anchor_day" doc:"Day on which the owner's months begin; null for that of the plan." example:"15"`
	CreatedAt  time.Time         `json:"created_at" doc:"When the owner was created."`

	TightestQuota *quotaUsageRecord `json:"tightest_quota,omitempty" doc:"Quota of which the owner has used the greatest share. Only in a list with usage=true, and only if a quota counts the owner. Of an owner without a plan, the first 8 quotas of the default plans of gateways are compared."`
}

func presentOwner(o *owner.Owner) ownerRecord {
	r := ownerRecord{
		OwnerID: o.ID, ExternalID: o.ExternalID, Name: optionalText(o.Name), PlanID: optionalText(o.PlanID), Plan: optionalText(o.Plan),
		State: string(o.State), Metadata: o.Metadata, TimeZone: optionalText(o.TimeZone), AnchorDay: optionalNumber(int64(o.AnchorDay)), CreatedAt: o.CreatedAt.UTC(),
	}
	if r.Metadata == nil {
		r.Metadata = map[string]string{}
	}
	return r
}

func presentOwnerWithUsage(o *control.OwnerWithUsage) (string, ownerRecord) {
	r := presentOwner(&o.Owner)
	if o.Tightest != nil {
		r.TightestQuota = &presentQuotas([]control.QuotaUsage{*o.Tightest})[0]
	}
	return o.ID, r
}

func ownerResponse(o *owner.Owner) response { return withETag(presentOwner(o), o.Version) }

func newOwnerResponse(o *owner.Owner) response { return ownerResponse(o).created("/v1/owners/" + o.ID) }

func ownerFilters() []queryParam {
	return []queryParam{
		{name: "external_id", doc: "Only the owner with exactly this external ID.", schema: textSchema(), example: "customer-42"},
		enumParam("state", "Only owners with this state.", string(owner.Active), string(owner.Suspended)),
		{name: "plan_id", doc: "Only owners that have this plan.", schema: textSchema(), example: "plan_01jz8y5c3te9b8r2m6q4v7x0bb"},
		{name: "q", doc: "Only owners whose name or external ID contains this text.", schema: textSchema(), example: "acme"},
	}
}

func (a *API) ownerOperations() []operation {
	record := reflect.TypeFor[ownerRecord]()
	return []operation{{
		id: "listOwners", method: http.MethodGet, path: "/v1/owners", tag: "Owners",
		summary: "List owners", description: "Returns the owners of the account, newest first.",
		query: append(append(pageParams(), ownerFilters()...),
			boolParam("usage", "If true, each owner has tightest_quota, with what it has used as in its usage. It counts as a search.")),
		success: http.StatusOK, result: reflect.TypeFor[recordedList[ownerRecord]](),
		run: a.listOwners,
	}, {
		id: "createOwner", method: http.MethodPost, path: "/v1/owners", tag: "Owners",
		summary:     "Create an owner",
		description: "Creates an owner: a customer or a team, whose keys share the limits of its plan. A key whose owner does not exist creates it too, with the default plan of the account. An external ID that is in use is a 409.",
		body:        reflect.TypeFor[createOwnerRequest](), replayable: true,
		success: http.StatusCreated, result: record, hasETag: true, hasLocation: true, errors: []int{http.StatusConflict},
		run: takes(a.createOwner),
	}, {
		id: "getOwner", method: http.MethodGet, path: "/v1/owners/{owner_id}", tag: "Owners",
		summary: "Get an owner", description: "Returns one owner.",
		success: http.StatusOK, result: record, hasETag: true,
		run: a.getOwner,
	}, {
		id: "updateOwner", method: http.MethodPatch, path: "/v1/owners/{owner_id}", tag: "Owners",
		summary:     "Update, suspend or resume an owner",
		description: "Changes the given fields; null clears an optional field. When a call that sets state to suspended returns, gateways refuse the keys of the owner, and long exchanges with them are cut.",
		body:        reflect.TypeFor[updateOwnerRequest](), ifMatch: true,
		success: http.StatusOK, result: record, hasETag: true, errors: []int{http.StatusConflict},
		run: takes(a.updateOwner),
	}, {
		id: "deleteOwner", method: http.MethodDelete, path: "/v1/owners/{owner_id}", tag: "Owners",
		summary: "Delete an owner", description: "Deletes an owner that has no active keys; with active keys it is a 409. Revoked and expired keys keep its external ID. Returns the record as it was before.",
		ifMatch: true, success: http.StatusOK, result: record, errors: []int{http.StatusConflict},
		run: a.deleteOwner,
	}}
}

func (a *API) listOwners(c *call) (response, error) {
	filter := control.OwnerFilter{
		ExternalID: c.query.Get("external_id"), State: owner.State(c.query.Get("state")), PlanID: c.query.Get("plan_id"), Query: c.query.Get("q"),
	}
	if c.query.Get("usage") == "true" {
		return page(c, "owners", c.cursorBinding(ownerFilters()), func(p control.Page) ([]control.OwnerWithUsage, error) {
			return searching(c, func() ([]control.OwnerWithUsage, error) {
				return a.cfg.Control.OwnersWithUsage(c.ctx, &c.actor, filter, p)
			})
		}, presentOwnerWithUsage)
	}
	return page(c, "owners", c.cursorBinding(ownerFilters()), func(p control.Page) ([]owner.Owner, error) {
		list := func() ([]owner.Owner, error) { return a.cfg.Control.Owners(c.ctx, &c.actor, filter, p) }
		if !filter.Searches() {
			return list()
		}
		return searching(c, list)
	}, func(o *owner.Owner) (string, ownerRecord) { return o.ID, presentOwner(o) })
}

func (a *API) createOwner(c *call, req createOwnerRequest) (response, error) {
	return respond(newOwnerResponse)(a.cfg.Control.CreateOwner(withIdempotency(c, newOwnerResponse), &c.actor, control.OwnerInput{
		ExternalID: req.ExternalID, Name: value(req.Name), Plan: control.ChoosePlan(value(req.PlanID), value(req.Plan)),
		Metadata: req.Metadata, TimeZone: value(req.TimeZone), AnchorDay: value(req.AnchorDay),
	}))
}

func (a *API) getOwner(c *call) (response, error) {
	return respond(ownerResponse)(a.cfg.Control.Owner(c.ctx, &c.actor, c.params["owner_id"]))
}

func (a *API) updateOwner(c *call, req updateOwnerRequest) (response, error) {
	return respond(ownerResponse)(a.cfg.Control.UpdateOwner(c.ctx, &c.actor, c.params["owner_id"], control.OwnerPatch{
		Name: req.Name.Optional, Plan: control.PlanChoice{ID: req.PlanID.Optional, Name: req.Plan.Optional}, State: setTo(req.State),
		Metadata: req.Metadata.Optional, TimeZone: req.TimeZone.Optional, AnchorDay: req.AnchorDay.Optional,
	}, c.match))
}

func (a *API) deleteOwner(c *call) (response, error) {
	return show(presentOwner)(a.cfg.Control.DeleteOwner(c.ctx, &c.actor, c.params["owner_id"], c.match))
}
