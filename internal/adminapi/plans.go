package adminapi

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/owner"
	"github.com/keygate/keygate/internal/plan"
)

type planLimitInput struct {
	Name        string       `json:"name" minLength:"1" maxLength:"32" doc:"Name of the limit, unique in the plan: 1 to 32 characters of a-z, 0-9, - and _." example:"per-minute"`
	Sustained   *string      `json:"sustained,omitempty" nullable:"true" minLength:"1" doc:"Of a rate: refill rate, <count>/<unit>. The count is at most 1000000000 for requests, and 9007199254740991 for other meters. A limit has exactly one of sustained, quota and concurrency." example:"600/min"`
	Burst       *string      `json:"burst,omitempty" nullable:"true" minLength:"1" doc:"Of a rate: bucket capacity, <count>/<unit>. Default: the count of sustained." example:"50/s"`
	Quota       *string      `json:"quota,omitempty" nullable:"true" minLength:"1" doc:"Of a quota: units of the meter in each calendar window, <count>/<window>. A window is day, week (from Monday), month (from anchor_day) or total, which never ends." example:"100000/month"`
	Concurrency *int64       `json:"concurrency,omitempty" nullable:"true" minimum:"1" maximum:"1000000" doc:"How many requests may be in flight at once, streams and upgrades included." example:"5"`
	Meter       *string      `json:"meter,omitempty" nullable:"true" minLength:"1" maxLength:"32" doc:"Of a rate or a quota: what the limit counts: requests (the default), bytes_in (the bytes of the bodies of requests), bytes_out (those of responses), or the meter of a cost of routes: 1 to 32 characters of a-z, 0-9 and _. A request takes the length that it declares of bytes_in, and nothing of bytes_out, when it comes; what passes is counted each second and when it ends, even beyond the limit." example:"bytes_out"`
	Overage     *string      `json:"overage,omitempty" nullable:"true" enum:"refuse,allow" doc:"Of a quota: refuse (the default) refuses requests beyond the count; allow counts them and refuses none."`
	WarnAt      []percentage `json:"warn_at,omitempty" nullable:"true" maxItems:"5" doc:"Of a quota: percentages of its count at which the event quota.threshold is raised, once in each window. An empty list is none. Default: 80 and 100."`
	Per         *string      `json:"per,omitempty" nullable:"true" enum:"key,owner" doc:"key (the default) counts each key by itself. owner counts all keys of an owner together; a key without an owner counts alone."`
	GatewayID   *string      `json:"gateway_id,omitempty" nullable:"true" minLength:"1" doc:"Only for requests through this gateway. Default: all gateways of the account." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Routes      []string     `json:"routes,omitempty" nullable:"true" maxItems:"100" doc:"Only for routes of that gateway with these paths. A path that ends in /* stands for all paths below it. Default: all routes." example:"/orders/{id},/reports/*"`
}

// percentage is a percentage of a quota's count.
type percentage int

// Schema returns the schema of a percentage.
func (percentage) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: bound(1), Maximum: bound(plan.MaxPercent)}
}

func percentages[From, To ~int](list []From) []To {
	if list == nil {
		return nil
	}
	out := make([]To, len(list))
	for i := range list {
		out[i] = To(list[i])
	}
	return out
}

type createPlanRequest struct {
	Name      string           `json:"name" minLength:"1" maxLength:"64" doc:"Name of the plan, unique in the account: 1 to 64 characters of a-z, 0-9, - and _." example:"free"`
	Title     *string          `json:"title,omitempty" nullable:"true" minLength:"1" maxLength:"255" doc:"Name for people." example:"Free plan"`
	Limits    []planLimitInput `json:"limits,omitempty" nullable:"true" maxItems:"8" doc:"Limits of the plan. All of those that apply to a request must pass. Default: none."`
	TimeZone  *string          `json:"time_zone,omitempty" nullable:"true" minLength:"1" maxLength:"64" doc:"IANA name of the time zone of the plan's calendar windows. Default: UTC." example:"Europe/Berlin"`
	AnchorDay *int             `json:"anchor_day,omitempty" nullable:"true" minimum:"1" maximum:"28" doc:"Day on which the plan's months begin. Default: 1." example:"15"`
}

type updatePlanRequest struct {
	Name      *string                    `json:"name,omitempty" minLength:"1" maxLength:"64" doc:"Name of the plan." example:"free"`
	Title     optional[string]           `json:"title,omitempty" minLength:"1" maxLength:"255" doc:"Name for people; null removes it." example:"Free plan"`
	Limits    optional[[]planLimitInput] `json:"limits,omitempty" maxItems:"8" doc:"Limits of the plan. Replaces all of them; null removes them. A limit that keeps its name keeps what was used of it."`
	TimeZone  optional[string]           `json:"time_zone,omitempty" minLength:"1" maxLength:"64" doc:"IANA name of the time zone of the plan's calendar windows; null for UTC." example:"Europe/Berlin"`
	AnchorDay optional[int]              `json:"anchor_day,omitempty" minimum:"1" maximum:"28" doc:"Day on which the plan's months begin; null for 1." example:"15"`
}

type planLimitRecord struct {
	Name        string       `json:"name" doc:"Name of the limit." example:"per-minute"`
	Sustained   *string      `json:"sustained" doc:"Refill rate, <count>/<unit>; null for another kind of limit." example:"600/min"`
	Burst       *string      `json:"burst" doc:"Bucket capacity, <count>/<unit>; null means the count of sustained." example:"50/s"`
	Quota       *string      `json:"quota" doc:"Units of the meter in each calendar window, <count>/<window>; null for another kind of limit." example:"100000/month"`
	Concurrency *int64       `json:"concurrency" doc:"How many requests may be in flight at once; null for another kind of limit." example:"5"`
	Meter       string       `json:"meter" doc:"What the limit counts: requests, bytes_in, bytes_out or the meter of a cost of routes." example:"requests"`
	Overage     *string      `json:"overage" enum:"refuse,allow" doc:"Whether a quota refuses requests beyond its count, or only counts them; null for another kind of limit."`
	WarnAt      []percentage `json:"warn_at" nullable:"true" doc:"Percentages of a quota's count at which the event quota.threshold is raised; null for another kind of limit."`
	Per         string       `json:"per" enum:"key,owner" doc:"key if each key counts by itself; owner if all keys of an owner count together."`
	GatewayID   *string      `json:"gateway_id" doc:"Gateway that the limit is restricted to; null for all." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Routes      []string     `json:"routes" nullable:"false" doc:"Paths of the routes that the limit is restricted to; empty for all." example:"/orders/{id},/reports/*"`
}

type planRecord struct {
	PlanID    string            `json:"plan_id" doc:"Identifier of the plan." example:"plan_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Name      string            `json:"name" doc:"Name of the plan." example:"free"`
	Title     *string           `json:"title" doc:"Name for people; null if it has none." example:"Free plan"`
	Limits    []planLimitRecord `json:"limits" nullable:"false" doc:"Limits of the plan."`
	TimeZone  string            `json:"time_zone" doc:"IANA name of the time zone of the plan's calendar windows." example:"UTC"`
	AnchorDay int               `json:"anchor_day" doc:"Day on which the plan's months begin." example:"1"`
	CreatedAt time.Time         `json:"created_at" doc:"When the plan was created."`
	Effect    *planEffectRecord `json:"effect,omitempty" doc:"What the change would have done to the requests of the last 24 hours. Only with effect=true."`
	Warnings  []string          `json:"warnings,omitempty" nullable:"false" doc:"Only in the response to a creation or change: paths in the routes of limits that match no route of the gateway. Absent if there are none." example:"the gateway gw_01jz8y5c3te9b8r2m6q4v7x0aa has no route /orders, so the limit per-minute does not apply to it at present"`
}

// limitInputs returns the limits of a plan that are in the body's field at. Of a rate, a quota or a number of requests in flight
// that could not be decoded, or whose name has another case, the response says that alone, and not that there is none.
func (c *call) limitInputs(at string, in []planLimitInput) []plan.LimitInput {
	out, known := make([]plan.LimitInput, len(in)), fault.ProblemsOf(c.invalid)
	for i := range in {
		l := &in[i]
		out[i] = plan.LimitInput{
			Name: l.Name, Sustained: value(l.Sustained), Burst: value(l.Burst), Quota: value(l.Quota), Concurrency: l.Concurrency, Meter: value(l.Meter), Overage: value(l.Overage),
			WarnAt: percentages[percentage, int](l.WarnAt), Per: value(l.Per), GatewayID: value(l.GatewayID), Routes: l.Routes,
		}
		out[i].Assume(func(field string) bool {
			path := fmt.Sprintf("%s[%d].%s", at, i, field)
			return slices.ContainsFunc(known, func(p fault.Problem) bool { return strings.EqualFold(p.Field, path) })
		})
	}
	return out
}

func presentPlan(p *plan.Plan) planRecord {
	r := planRecord{
		PlanID: p.ID, Name: p.Name, Title: optionalText(p.Title), Limits: make([]planLimitRecord, len(p.Limits)),
		TimeZone: p.TimeZone, AnchorDay: p.AnchorDay, CreatedAt: p.CreatedAt.UTC(),
	}
	for i := range p.Limits {
		r.Limits[i] = presentPlanLimit(&p.Limits[i])
	}
	return r
}

func presentPlanLimit(l *plan.Limit) planLimitRecord {
	r := planLimitRecord{
		Name: l.Name, Sustained: rate(l.Sustained.Rate), Burst: rate(l.Burst.Rate), Quota: optionalText(l.Quota.String()), Meter: l.MeterOrDefault(),
		Per: string(l.Per), GatewayID: optionalText(l.GatewayID), Routes: orEmpty(l.Routes),
	}
	if l.IsConcurrency() {
		r.Concurrency = &l.Concurrency
	}
	if l.IsQuota() {
		r.Overage, r.WarnAt = optionalText(string(l.OverageOrDefault())), percentages[int, percentage](l.Warnings())
	}
	return r
}

func planResponse(p *plan.Plan) response { return withETag(presentPlan(p), p.Version) }

func changedPlanResponse(p *control.ChangedPlan) response {
	r := presentPlan(&p.Plan)
	r.Warnings = p.Warnings
	return withETag(r, p.Version)
}

func newPlanResponse(p *control.ChangedPlan) response {
	return changedPlanResponse(p).created("/v1/plans/" + p.ID)
}

func planFilters() []queryParam {
	return []queryParam{
		{name: "name", doc: "Only the plan with exactly this name.", schema: textSchema(), example: "free"},
		{name: "q", doc: "Only plans whose name or title contains this text.", schema: textSchema(), example: "fre"},
	}
}

func (a *API) planOperations() []operation {
	record := reflect.TypeFor[planRecord]()
	return []operation{{
		id: "listPlans", method: http.MethodGet, path: "/v1/plans", tag: "Plans",
		summary: "List plans", description: "Returns the plans of the account, newest first.",
		query: append(pageParams(), planFilters()...), success: http.StatusOK, result: reflect.TypeFor[list[planRecord]](),
		run: a.listPlans,
	}, {
		id: "createPlan", method: http.MethodPost, path: "/v1/plans", tag: "Plans",
		summary:     "Create a plan",
		description: "Creates a plan: a named set of limits that keys, owners and gateways share by reference. A name that is in use is a 409.",
		body:        reflect.TypeFor[createPlanRequest](), replayable: true,
		success: http.StatusCreated, result: record, hasETag: true, hasLocation: true, errors: []int{http.StatusConflict},
		run: takes(a.createPlan),
	}, {
		id: "getPlan", method: http.MethodGet, path: "/v1/plans/{plan_id}", tag: "Plans",
		summary: "Get a plan", description: "Returns one plan.",
		success: http.StatusOK, result: record, hasETag: true,
		run: a.getPlan,
	}, {
		id: "updatePlan", method: http.MethodPatch, path: "/v1/plans/{plan_id}", tag: "Plans",
		summary:     "Update a plan",
		description: "Changes the given fields; null clears an optional field. When the call returns, the limits are in force for all keys and owners that have the plan. What was used of a limit that keeps its name stays used.",
		query: []queryParam{
			boolParam("dry_run", "If true, returns what the plan would be, without changing anything."),
			boolParam("effect", "If true, with dry_run=true, also returns what the change would have done to the requests of the last 24 hours. "+
				"Needs a key whose scope also allows GET /v1/reports/traffic. It counts as a search."),
		},
		body: reflect.TypeFor[updatePlanRequest](), ifMatch: true,
		success: http.StatusOK, result: record, hasETag: true, errors: []int{http.StatusConflict},
		run: takes(a.updatePlan),
	}, {
		id: "deletePlan", method: http.MethodDelete, path: "/v1/plans/{plan_id}", tag: "Plans",
		summary: "Delete a plan", description: "Deletes a plan that is not in use. If keys that are not revoked or owners have it, or if it is the default of a gateway or of the account, it is a 409 with their numbers. Returns the record as it was before.",
		ifMatch: true, success: http.StatusOK, result: record, errors: []int{http.StatusConflict},
		run: a.deletePlan,
	}, {
		id: "listKeysOfPlan", method: http.MethodGet, path: "/v1/plans/{plan_id}/keys", tag: "Plans",
		summary: "List the keys of a plan", description: "Returns the keys that have the plan themselves, newest first. Keys that have it through their owner or a gateway are not included.",
		query: pageParams(), success: http.StatusOK, result: reflect.TypeFor[list[KeyRecord]](),
		run: a.listKeysOfPlan,
	}, {
		id: "listOwnersOfPlan", method: http.MethodGet, path: "/v1/plans/{plan_id}/owners", tag: "Plans",
		summary: "List the owners of a plan", description: "Returns the owners that have the plan, newest first.",
		query: pageParams(), success: http.StatusOK, result: reflect.TypeFor[recordedList[ownerRecord]](),
		run: a.listOwnersOfPlan,
	}}
}

func (a *API) listPlans(c *call) (response, error) {
	filter := control.PlanFilter{Name: c.query.Get("name"), Query: c.query.Get("q")}
	return page(c, "plans", c.cursorBinding(planFilters()), func(p control.Page) ([]plan.Plan, error) {
		list := func() ([]plan.Plan, error) { return a.cfg.Control.Plans(c.ctx, &c.actor, filter, p) }
		if filter.Query == "" {
			return list()
		}
		return searching(c, list)
	}, func(p *plan.Plan) (string, planRecord) { return p.ID, presentPlan(p) })
}

func (a *API) createPlan(c *call, req createPlanRequest) (response, error) {
	return respond(newPlanResponse)(a.cfg.Control.CreatePlan(withIdempotency(c, newPlanResponse), &c.actor, control.PlanInput{
		Name: req.Name, Title: value(req.Title), Limits: c.limitInputs("limits", req.Limits), TimeZone: value(req.TimeZone), AnchorDay: value(req.AnchorDay),
	}))
}

func (a *API) getPlan(c *call) (response, error) {
	return respond(planResponse)(a.cfg.Control.Plan(c.ctx, &c.actor, c.params["plan_id"]))
}

func (a *API) updatePlan(c *call, req updatePlanRequest) (response, error) {
	limits := control.Optional[[]plan.LimitInput]{Present: req.Limits.Present, Null: req.Limits.Null, Value: c.limitInputs("limits", req.Limits.Value)}
	patch := control.PlanPatch{Name: setTo(req.Name), Title: req.Title.Optional, Limits: limits, TimeZone: req.TimeZone.Optional, AnchorDay: req.AnchorDay.Optional}
	if err := c.checkEffect(); err != nil {
		return response{}, err
	}
	if c.query.Get("dry_run") == "true" {
		return a.tryPlan(c, patch)
	}
	return respond(changedPlanResponse)(a.cfg.Control.UpdatePlan(c.ctx, &c.actor, c.params["plan_id"], patch, c.match))
}

func (a *API) deletePlan(c *call) (response, error) {
	return show(presentPlan)(a.cfg.Control.DeletePlan(c.ctx, &c.actor, c.params["plan_id"], c.match))
}

func (a *API) listKeysOfPlan(c *call) (response, error) {
	planID := c.params["plan_id"]
	return page(c, "keys of a plan", planID, func(p control.Page) ([]apikey.Key, error) {
		return a.cfg.Control.KeysOfPlan(c.ctx, &c.actor, planID, p)
	}, func(k *apikey.Key) (string, KeyRecord) { return k.ID, presentKey(k, c.now) })
}

func (a *API) listOwnersOfPlan(c *call) (response, error) {
	planID := c.params["plan_id"]
	return page(c, "owners of a plan", planID, func(p control.Page) ([]owner.Owner, error) {
		return a.cfg.Control.OwnersOfPlan(c.ctx, &c.actor, planID, p)
	}, func(o *owner.Owner) (string, ownerRecord) { return o.ID, presentOwner(o) })
}
