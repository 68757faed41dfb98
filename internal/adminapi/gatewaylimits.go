package adminapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// limitLevelRecord is the current status of one limit.
type limitLevelRecord struct {
	LimitScope string  `json:"limit_scope" enum:"key,route,daily,global,plan,anonymous,self_service,concurrency" doc:"Scope of the limit."`
	LimitName  *string `json:"limit_name" doc:"Plan and limit, for limits of plans; route or key for other limits of the scope concurrency; otherwise null." example:"pro.per-minute"`
	RouteID    *string `json:"route_id" doc:"Route that the limit applies to; null if it is not a route's limit." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	KeyID      *string `json:"key_id" doc:"Key that the limit applies to; null if several keys share it. For the tokens of an issuer with one subject, an identifier that begins with key_7zz and is of no key." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	OwnerID    *string `json:"owner_id" doc:"Owner that the limit applies to; null if it is not an owner's limit." example:"own_01jz8y5c3te9b8r2m6q4v7x0ee"`
	Address    *string `json:"address" doc:"Client address that the limit applies to: an IPv4 address, or a prefix for IPv6; others for the addresses that there is no room to count on their own; null if the limit does not count addresses." example:"203.0.113.7"`
	Limit      int64   `json:"limit" doc:"Capacity of the limit." example:"50"`
	Remaining  int64   `json:"remaining" doc:"Remaining requests, rounded down." example:"12"`
	ResetAt    int64   `json:"reset_at" doc:"When the limit is full again, as a Unix time in seconds; 0 for the scope concurrency, where only the end of requests gives back." example:"1893456000"`
}

type simulateRequest struct {
	RouteID   *string               `json:"route_id,omitempty" nullable:"true" minLength:"1" doc:"Route to simulate the limit for." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	KeyID     *string               `json:"key_id,omitempty" nullable:"true" minLength:"1" doc:"Key to simulate the limit for. With neither route_id nor key_id, the limit is the gateway's global limit." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	RateLimit *simulatedLimit       `json:"rate_limit,omitempty" doc:"The limit, in the form it has in its record: for a key a string, as in 100/min, or an object with sustained, burst and daily; for a route an object; for the gateway an object with sustained and burst. Either rate_limit or plan is required."`
	Plan      *simulatedPlanRequest `json:"plan,omitempty" doc:"A plan, in place of rate_limit: its limits are simulated as if every key and owner had it. Neither route_id nor key_id can be given with it."`
}

// simulatedPlanRequest is a plan that need not exist. Its name is that of nothing.
type simulatedPlanRequest struct {
	_         struct{}         `nullable:"true"`
	Name      *string          `json:"name,omitempty" nullable:"true" minLength:"1" maxLength:"64" doc:"Name of the plan, which makes no difference." example:"free"`
	Title     *string          `json:"title,omitempty" nullable:"true" minLength:"1" maxLength:"255" doc:"Name for people, which makes no difference." example:"Free plan"`
	Limits    []planLimitInput `json:"limits" nullable:"false" maxItems:"8" doc:"Limits of the plan."`
	TimeZone  *string          `json:"time_zone,omitempty" nullable:"true" minLength:"1" maxLength:"64" doc:"IANA name of the time zone of the plan's calendar windows. Default: UTC." example:"Europe/Berlin"`
	AnchorDay *int             `json:"anchor_day,omitempty" nullable:"true" minimum:"1" maximum:"28" doc:"Day on which the plan's months begin. Default: 1." example:"15"`
}

// simulatedLimit is a limit in one of two forms: a string or an object for a key, an object
// for a route or a gateway.
type simulatedLimit struct {
	rate   string
	object *rateLimitInput
}

// UnmarshalJSON decodes a value that the schema has accepted.
func (l *simulatedLimit) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return unmarshal(data, &l.rate)
	}
	l.object = &rateLimitInput{}
	return unmarshal(data, l.object)
}

// Schema returns the schema of both forms.
func (simulatedLimit) Schema(r huma.Registry) *huma.Schema {
	object := *r.SchemaFromRef(r.Schema(reflect.TypeFor[rateLimitInput](), true, "").Ref)
	object.Nullable = false
	rate := textSchema()
	rate.Description = "For a key: <count>/<unit>."
	return &huma.Schema{OneOf: []*huma.Schema{rate, &object}}
}

// config returns the limit to simulate.
func (req *simulateRequest) config() (ratelimit.Config, error) {
	var both error
	if req.RouteID != nil && req.KeyID != nil {
		both = fault.Invalid("key_id", "must not be given together with route_id: simulate the limit of a route, of a key, or of the gateway")
	}
	if req.RateLimit == nil {
		return ratelimit.Config{}, fault.Join(both, fault.Invalid("rate_limit", "is required, unless there is a plan: add one of them"))
	}
	limit, err := req.RateLimit.config(req.RouteID != nil, req.KeyID != nil)
	return limit, fault.Join(both, fault.Prefixed("rate_limit", err))
}

// config returns the limit of a route or a key, or of a gateway. Errors name the field
// below the limit.
func (l *simulatedLimit) config(ofRoute, ofKey bool) (ratelimit.Config, error) {
	switch {
	case ofKey && !ofRoute && l.object != nil && l.object.Per != nil:
		return ratelimit.Config{}, fault.Invalid("per", "must be absent for a key, whose limit is its own")
	case !ofKey && l.object == nil:
		return ratelimit.Config{}, fault.Invalid("", "must be an object for a route or the gateway, as in {\"sustained\": \"600/min\"}")
	}
	c, err := l.parse()
	if !ofRoute && !ofKey && err == nil {
		err = gateway.CheckGlobalLimit(c)
	}
	return c, err
}

// parse parses the limit in the form that it has.
func (l *simulatedLimit) parse() (ratelimit.Config, error) {
	if l.object != nil {
		return l.object.config()
	}
	var rate ratelimit.Rate
	err := rate.UnmarshalText([]byte(l.rate))
	return ratelimit.Config{Sustained: rate}, err
}

type simulationRecord struct {
	Requests int64                `json:"requests" doc:"Number of recorded requests of the last 24 hours that the limit would have applied to." example:"120000"`
	Refused  int64                `json:"refused" doc:"Number of those requests that the limit would have refused." example:"340"`
	Keys     []simulatedKeyRecord `json:"keys" nullable:"false" doc:"Keys with at least one request that would have been refused, most refused first."`

	Limits *[]simulatedLimitRecord `json:"limits,omitempty" nullable:"false" doc:"Only for a plan: what each of its limits would have refused, in the order of the plan. A request that several would have refused counts for the first of them."`

	Incomplete       bool   `json:"incomplete,omitempty" doc:"true if the newest requests are missing, because the store did not take them; otherwise absent."`
	IncompleteReason string `json:"incomplete_reason,omitempty" doc:"Why requests are missing; absent if none are." example:"the newest records are missing, and are added as soon as the store takes them: the disk is full"`
}

type simulatedKeyRecord struct {
	KeyID   *string   `json:"key_id" doc:"Identifier of the key; null for requests without a key." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Refused int64     `json:"refused" doc:"Number of requests with this key that would have been refused." example:"340"`
	FirstAt time.Time `json:"first_at" doc:"When the first of them would have been refused."`
}

type simulatedLimitRecord struct {
	Limit   string `json:"limit" doc:"Name of the limit." example:"per-minute"`
	Refused int64  `json:"refused" doc:"Number of requests that it would have refused." example:"340"`
	Unknown int64  `json:"unknown" doc:"Number of requests of which it is not known whether it would have refused them. With per owner, those of keys beyond the first 10,000 that used the gateway, whose owner is not looked up. Of a limit of another meter than requests, all, and of a limit of requests, too, if a route that it applies to has a cost of this meter. Of a quota, those that it admits in a window that began more than 24 hours ago, since what was used before is not known. Of a limit of requests in flight, all, since it is not recorded how long they took." example:"0"`
}

func (a *API) limitOperations() []operation {
	return []operation{{
		id: "listLimits", method: http.MethodGet, path: "/v1/gateways/{gateway_id}/limits", tag: "Limits",
		summary: "List the limits of a gateway", description: "Returns the current level of every limit in use: the gateway's, its routes', those of recently used keys and addresses, and those of plans, for each owner or key that uses them on any gateway.",
		query: pageParams(), success: http.StatusOK, result: reflect.TypeFor[list[limitLevelRecord]](),
		run: a.listLimits,
	}, {
		id: "simulateLimit", method: http.MethodPost, path: "/v1/gateways/{gateway_id}/limits/simulate", tag: "Limits",
		summary:     "Simulate a limit",
		description: "Applies a rate limit, or the limits of a plan, to the recorded requests of the last 24 hours, with the algorithm of the gateway itself, and returns what it would have refused. Changes nothing.",
		body:        reflect.TypeFor[simulateRequest](), replayable: true,
		success: http.StatusOK, result: reflect.TypeFor[simulationRecord](),
		run: takes(a.simulateLimit),
	}}
}

func (a *API) listLimits(c *call) (response, error) {
	return page(c, "limits", c.params["gateway_id"], func(p control.Page) ([]control.LimitLevel, error) {
		release, err := c.take(a.bounds.levels, levelsPerAccount,
			"too many calls of this account list limits: %d runs at a time, and this one waited for its turn in vain; retry after the seconds in the Retry-After header")
		if err != nil {
			return nil, err
		}
		defer release()
		return a.cfg.Control.Limits(c.ctx, &c.actor, c.params["gateway_id"], p)
	}, func(l *control.LimitLevel) (string, limitLevelRecord) {
		return l.Cursor(), limitLevelRecord{
			LimitScope: l.Scope.String(), LimitName: optionalText(l.LimitName()), RouteID: optionalText(l.RouteID),
			KeyID: optionalText(l.KeyID), OwnerID: optionalText(l.OwnerID), Address: optionalText(l.Address), Limit: l.Limit, Remaining: l.Remaining, ResetAt: l.ResetAt,
		}
	})
}

func (a *API) simulateLimit(c *call, req simulateRequest) (response, error) {
	if c.invalid != nil || req.Plan != nil {
		// Which form the limit must have depends on the other fields.
		var badRate error
		if req.RateLimit != nil {
			_, badRate = req.RateLimit.parse()
		}
		return a.simulatePlan(c, req, fault.Prefixed("rate_limit", badRate))
	}
	limit, err := req.config()
	if err != nil {
		return response{}, err
	}
	present := func(s *control.Simulation) response { return ok(presentSimulation(s, c.completeness.Missing)) }
	return respond(present)(searching(c, func() (*control.Simulation, error) {
		return a.cfg.Control.SimulateLimit(withIdempotency(c, present), &c.actor, c.params["gateway_id"], control.SimulationInput{
			RouteID: value(req.RouteID), KeyID: value(req.KeyID), Limit: limit,
		})
	}))
}

// simulatePlan simulates the plan of req, if that is valid. invalid is what is wrong with its other fields.
func (a *API) simulatePlan(c *call, req simulateRequest, invalid error) (response, error) {
	p := req.Plan
	if p == nil {
		return response{}, invalid
	}
	if req.RateLimit != nil || req.RouteID != nil || req.KeyID != nil {
		return response{}, fault.Join(invalid, fault.Invalid("plan", "must not be given together with rate_limit, route_id or key_id: give the routes and gateways of a plan in its limits"))
	}
	present := func(s *control.Simulation) response { return ok(presentSimulation(s, c.completeness.Missing)) }
	return respond(present)(searching(c, func() (*control.Simulation, error) {
		return a.cfg.Control.SimulatePlan(withIdempotency(c, present), &c.actor, c.params["gateway_id"], control.PlanInput{
			Name: value(p.Name), Title: value(p.Title), Limits: c.limitInputs("plan.limits", p.Limits), TimeZone: value(p.TimeZone), AnchorDay: value(p.AnchorDay),
		})
	}))
}

func presentSimulation(s *control.Simulation, missing string) simulationRecord {
	out := simulationRecord{
		Requests: s.Requests, Refused: s.Refused, Keys: make([]simulatedKeyRecord, len(s.Keys)),
		Incomplete: missing != "", IncompleteReason: missing,
	}
	if s.Limits != nil {
		limits := make([]simulatedLimitRecord, len(s.Limits))
		for i, l := range s.Limits {
			limits[i] = simulatedLimitRecord(l)
		}
		out.Limits = &limits
	}
	for i, k := range s.Keys {
		out.Keys[i] = simulatedKeyRecord{KeyID: optionalText(k.KeyID), Refused: k.Refused, FirstAt: k.FirstAt.UTC()}
	}
	return out
}
