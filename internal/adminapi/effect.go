package adminapi

import (
	"time"

	"github.com/keygate/keygate/internal/control"
)

type effectRecord struct {
	Since         time.Time           `json:"since" doc:"Start of the time that the effect covers; it ends with the call."`
	Requests      int64               `json:"requests" doc:"Requests on all routes whose requests the push concerns, also those that are left out of routes." example:"1204"`
	Keys          int64               `json:"keys" doc:"Distinct keys of these requests." example:"3"`
	Refused       int64               `json:"refused" doc:"How many of these requests the new configuration would refuse." example:"1204"`
	RefusedBefore int64               `json:"refused_before" doc:"How many of them the replayed limits in force refuse." example:"0"`
	AtMost        bool                `json:"at_most" doc:"Whether refused is an upper bound, because the recorded counts do not tell more." example:"false"`
	Routes        []routeEffectRecord `json:"routes" nullable:"false" doc:"Routes in force that had requests which the push concerns, at most 1000: those with the most requests that would be refused in addition first."`
	RoutesLeftOut int                 `json:"routes_left_out" doc:"Number of routes beyond these." example:"0"`

	Incomplete       bool   `json:"incomplete,omitempty" doc:"true if the newest requests are missing, because the store did not take them; otherwise absent."`
	IncompleteReason string `json:"incomplete_reason,omitempty" doc:"Why requests are missing; absent if none are." example:"the newest records are missing, and are added as soon as the store takes them: the disk is full"`
}

type routeEffectRecord struct {
	RouteID       string   `json:"route_id" doc:"Identifier of the route in force." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Path          string   `json:"path" doc:"Path template of the route in force." example:"/orders/{id}"`
	Methods       []string `json:"methods" nullable:"false" doc:"Methods of the route in force." example:"[\"GET\"]"`
	Changes       []string `json:"changes" nullable:"false" enum:"removed,methods,auth,rate_limit,cost,concurrency,upstream,split,strip_prefix,redirect,respond,allow_ips,deny_ips,request_headers,response_headers,validate,global_rate_limit" doc:"What changes for its requests: removed if no other route takes them over, methods if some of its methods are no longer accepted, auth if a key is required now or no longer, rate_limit for another limit of a route, cost for another cost (what limits of plans refuse because of it is not counted), concurrency for another bound of requests in flight (what it refuses is not counted), upstream for another upstream, split for another split of the route or of the gateway, strip_prefix, redirect or respond for another one of the route, allow_ips or deny_ips for another list of the route or of the gateway, if some address comes to be refused or allowed (which addresses requests came from is not counted, so that all count as refused, and at_most is set), request_headers or response_headers for other rules for headers of the route or of the gateway, validate for another mode of checking requests against the document, global_rate_limit for another global limit."`
	Requests      int64    `json:"requests" doc:"Requests on the route, as in the traffic report." example:"1204"`
	Keys          int64    `json:"keys" doc:"Distinct keys of these requests." example:"3"`
	Refused       int64    `json:"refused" doc:"How many of these requests the new configuration would refuse." example:"1204"`
	RefusedBefore int64    `json:"refused_before" doc:"How many of them the replayed limits in force refuse." example:"0"`
	AtMost        bool     `json:"at_most" doc:"Whether refused is an upper bound, because the recorded counts do not tell which requests would be refused: they have no methods with their limits, no paths below a template, no addresses, and no keys of requests to public routes." example:"false"`
}

func presentEffect(e *control.Effect, missing string) *effectRecord {
	out := &effectRecord{
		Since: e.Since, Requests: e.Requests, Keys: e.Keys, Refused: e.Refused, RefusedBefore: e.RefusedBefore, AtMost: e.AtMost,
		Routes: make([]routeEffectRecord, len(e.Routes)), RoutesLeftOut: e.LeftOut,
		Incomplete: missing != "", IncompleteReason: missing,
	}
	for i := range e.Routes {
		r := &e.Routes[i]
		changes := make([]string, len(r.Changes))
		for j, c := range r.Changes {
			changes[j] = string(c)
		}
		out.Routes[i] = routeEffectRecord{
			RouteID: r.RouteID, Path: r.Path, Methods: r.Methods, Changes: changes, Requests: r.Requests, Keys: r.Keys,
			Refused: r.Refused, RefusedBefore: r.RefusedBefore, AtMost: r.AtMost,
		}
	}
	return out
}

type planEffectRecord struct {
	Since         time.Time               `json:"since" doc:"Start of the time that the effect covers; it ends with the call."`
	Requests      int64                   `json:"requests" doc:"Requests to which a limit of the plan applies, before or after the change: of keys that have the plan now, by themselves, by their owner or as the default of their gateway." example:"1204"`
	Keys          int64                   `json:"keys" doc:"Distinct keys of these requests." example:"3"`
	Refused       int64                   `json:"refused" doc:"How many of these requests the changed plan would refuse." example:"12"`
	RefusedBefore int64                   `json:"refused_before" doc:"How many of them the plan in force refuses in the same replay." example:"0"`
	Unknown       int64                   `json:"unknown" doc:"Other requests that may be of keys with the plan: those of keys beyond the first 10000." example:"0"`
	Limits        []planLimitEffectRecord `json:"limits" nullable:"false" doc:"Limits of the changed plan in its order, then those that it no longer has. A request that several of them refuse counts for the first."`

	Incomplete       bool   `json:"incomplete,omitempty" doc:"true if the newest requests are missing, because the store did not take them; otherwise absent."`
	IncompleteReason string `json:"incomplete_reason,omitempty" doc:"Why requests are missing; absent if none are." example:"the newest records are missing, and are added as soon as the store takes them: the disk is full"`
}

type planLimitEffectRecord struct {
	Limit         string `json:"limit" doc:"Name of the limit." example:"per-minute"`
	Change        string `json:"change" enum:"added,removed,changed,unchanged" doc:"What the change does to the limit. Requests of an unchanged one may differ, because other limits come before it."`
	Refused       int64  `json:"refused" doc:"How many requests the limit would refuse after the change." example:"12"`
	RefusedBefore int64  `json:"refused_before" doc:"How many requests the limit of this name refuses now." example:"0"`
	Unknown       int64  `json:"unknown" doc:"How many requests the limit may refuse besides: those of which it counts something else than the request, those in flight at once, and those that a quota admits in a window that began before the last 24 hours." example:"0"`
}

// tryPlan answers a dry run of an update of a plan, with its effect if the call asks for it.
func (a *API) tryPlan(c *call, patch control.PlanPatch) (response, error) {
	t, err := a.cfg.Control.TryPlan(c.ctx, &c.actor, c.params["plan_id"], patch, c.match)
	if err != nil {
		return response{}, err
	}
	record := presentPlan(&t.Plan)
	record.Warnings = t.Warnings
	if c.wantsEffect() {
		e, err := searching(c, func() (*control.PlanEffect, error) { return a.cfg.Control.PlanEffect(c.ctx, &c.actor, t) })
		if err != nil {
			return response{}, err
		}
		record.Effect = presentPlanEffect(e, c.completeness.Missing)
	}
	return withETag(record, t.Version), nil
}

func presentPlanEffect(e *control.PlanEffect, missing string) *planEffectRecord {
	out := &planEffectRecord{
		Since: e.Since, Requests: e.Requests, Keys: e.Keys, Refused: e.Refused, RefusedBefore: e.RefusedBefore, Unknown: e.Unknown,
		Limits: make([]planLimitEffectRecord, len(e.Limits)), Incomplete: missing != "", IncompleteReason: missing,
	}
	for i, l := range e.Limits {
		out.Limits[i] = planLimitEffectRecord{Limit: l.Limit, Change: string(l.Change), Refused: l.Refused, RefusedBefore: l.RefusedBefore, Unknown: l.Unknown}
	}
	return out
}
