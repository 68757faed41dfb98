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
	Changes       []string `json:"changes" nullable:"false" enum:"removed,methods,auth,rate_limit,cost,concurrency,global_rate_limit" doc:"What changes for its requests: removed if no other route takes them over, methods if some of its methods are no longer accepted, auth if a key is required now or no longer, rate_limit for another limit of a route, cost for another cost (what limits of plans refuse because of it is not counted), concurrency for another bound of requests in flight (what it refuses is not counted), global_rate_limit for another global limit."`
	Requests      int64    `json:"requests" doc:"Requests on the route, as in the traffic report." example:"1204"`
	Keys          int64    `json:"keys" doc:"Distinct keys of these requests." example:"3"`
	Refused       int64    `json:"refused" doc:"How many of these requests the new configuration would refuse." example:"1204"`
	RefusedBefore int64    `json:"refused_before" doc:"How many of them the replayed limits in force refuse." example:"0"`
	AtMost        bool     `json:"at_most" doc:"Whether refused is an upper bound, because the recorded counts do not tell which requests would be refused: they have no methods with their limits, no paths below a template, and no keys of requests to public routes." example:"false"`
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
