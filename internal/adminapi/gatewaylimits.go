package adminapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/ratelimit"
)

// limitLevelRecord is where one limit stands.
type limitLevelRecord struct {
	LimitScope string  `json:"limit_scope" enum:"key,route,daily,global" doc:"Which limit it is."`
	RouteID    *string `json:"route_id" doc:"Route that the limit is of; null if it is of none." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	KeyID      *string `json:"key_id" doc:"Key that the limit is of; null if all keys share it." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Limit      int64   `json:"limit" doc:"Its capacity." example:"50"`
	Remaining  int64   `json:"remaining" doc:"Whole requests left." example:"12"`
	ResetAt    int64   `json:"reset_at" doc:"Unix second at which it is full again." example:"1893456000"`
}

type simulateRequest struct {
	RouteID   *string        `json:"route_id,omitempty" nullable:"true" minLength:"1" doc:"Route that the limit would be of." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	KeyID     *string        `json:"key_id,omitempty" nullable:"true" minLength:"1" doc:"Key that the limit would be of. With neither, it is the gateway's global one." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	RateLimit simulatedLimit `json:"rate_limit" doc:"The limit in its own form: of a key a rate, as in 100/min; of a route an object as in its record; of the gateway one with sustained and burst."`
}

// simulatedLimit is a limit in the form that its owner has it in: a rate, or an
// object.
type simulatedLimit struct {
	rate    string
	members *rateLimitInput
}

// UnmarshalJSON reads what the schema has passed.
func (l *simulatedLimit) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return unmarshal(data, &l.rate)
	}
	l.members = &rateLimitInput{}
	return unmarshal(data, l.members)
}

// Schema is that of either form.
func (simulatedLimit) Schema(r huma.Registry) *huma.Schema {
	object := *r.SchemaFromRef(r.Schema(reflect.TypeFor[rateLimitInput](), true, "").Ref)
	object.Nullable = false
	rate := textSchema()
	rate.Description = "Of a key: <count>/<unit>."
	return &huma.Schema{OneOf: []*huma.Schema{rate, &object}}
}

// config returns the limit of a body.
func (req *simulateRequest) config() (ratelimit.Config, error) {
	l := &req.RateLimit
	switch {
	case req.RouteID != nil && req.KeyID != nil:
		return ratelimit.Config{}, fault.Invalid("key_id", "must not stand beside route_id: a limit is of a route, of a key, or of the gateway")
	case req.KeyID != nil && l.members != nil:
		return ratelimit.Config{}, fault.Invalid("rate_limit", "must be a rate for a key, as in 100/min")
	case req.KeyID == nil && l.members == nil:
		return ratelimit.Config{}, fault.Invalid("rate_limit", "must be an object for a route or the gateway, as in {\"sustained\": \"600/min\"}")
	case l.members == nil:
		var rate ratelimit.Rate
		if err := rate.UnmarshalText([]byte(l.rate)); err != nil {
			return ratelimit.Config{}, fault.Prefixed("rate_limit", err)
		}
		return ratelimit.Config{Sustained: rate}, nil
	}
	c, err := l.members.config()
	switch {
	case err != nil:
		return c, fault.Prefixed("rate_limit", err)
	case c.IsZero():
		return c, fault.Invalid("rate_limit", "must have at least one of sustained, burst and daily")
	case req.RouteID == nil && l.members.Daily != nil:
		return c, fault.Invalid("rate_limit.daily", "is for routes: the gateway's global limit has sustained and burst")
	case req.RouteID == nil && l.members.Per != nil:
		return c, fault.Invalid("rate_limit.per", "is for routes: the gateway's global limit has sustained and burst")
	case req.RouteID == nil && l.members.Sustained == nil:
		return c, fault.Invalid("rate_limit.sustained", "is required: add it")
	}
	return c, nil
}

type simulationRecord struct {
	Requests int64                `json:"requests" doc:"Recorded requests of the last 24 hours that the limit would have applied to." example:"120000"`
	Refused  int64                `json:"refused" doc:"How many of them it would have refused." example:"340"`
	Keys     []simulatedKeyRecord `json:"keys" nullable:"false" doc:"Keys that would have been refused at least once, the most refused first."`
}

type simulatedKeyRecord struct {
	KeyID   *string   `json:"key_id" doc:"Identifier of the key; null for callers without one." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	Refused int64     `json:"refused" doc:"How many of its requests would have been refused." example:"340"`
	FirstAt time.Time `json:"first_at" doc:"When it would have been refused first."`
}

func (a *API) limitOperations() []operation {
	return []operation{{
		id: "listLimits", method: http.MethodGet, path: "/v1/gateways/{gateway_id}/limits", tag: "Limits",
		summary: "List the limits of a gateway", description: "Tells where every limit in use stands now: the gateway's, its routes', and those of the keys that called lately.",
		query: pageParams(), success: http.StatusOK, result: reflect.TypeFor[list[limitLevelRecord]](),
		run: a.listLimits,
	}, {
		id: "simulateLimit", method: http.MethodPost, path: "/v1/gateways/{gateway_id}/limits/simulate", tag: "Limits",
		summary:     "Simulate a limit",
		description: "Replays the recorded requests of the last 24 hours through a limit, by the same code that decides for real, and tells what it would have refused. Changes nothing.",
		body:        reflect.TypeFor[simulateRequest](), replayable: true,
		success: http.StatusOK, result: reflect.TypeFor[simulationRecord](),
		run: a.simulateLimit,
	}}
}

func (a *API) listLimits(c *call) (response, error) {
	return page(c, "limits", c.params["gateway_id"], func(p control.Page) ([]control.LimitLevel, error) {
		return a.cfg.Control.Limits(c.ctx, &c.caller, c.params["gateway_id"], p)
	}, func(l *control.LimitLevel) (string, limitLevelRecord) {
		return l.Place(), limitLevelRecord{
			LimitScope: l.Scope.String(), RouteID: optionalText(l.RouteID), KeyID: optionalText(l.KeyID), Limit: l.Limit, Remaining: l.Remaining, ResetAt: l.ResetAt,
		}
	})
}

func (a *API) simulateLimit(c *call) (response, error) {
	var req simulateRequest
	if err := c.decode(&req); err != nil {
		return response{}, err
	}
	limit, err := req.config()
	if err != nil {
		return response{}, err
	}
	present := func(s *control.Simulation) response { return ok(presentSimulation(s)) }
	s, err := a.cfg.Control.SimulateLimit(withIdempotency(c, present), &c.caller, c.params["gateway_id"], control.SimulationInput{
		RouteID: value(req.RouteID), KeyID: value(req.KeyID), Limit: limit,
	})
	if err != nil {
		return response{}, err
	}
	return present(s), nil
}

func presentSimulation(s *control.Simulation) simulationRecord {
	out := simulationRecord{Requests: s.Requests, Refused: s.Refused, Keys: make([]simulatedKeyRecord, len(s.Keys))}
	for i, k := range s.Keys {
		out.Keys[i] = simulatedKeyRecord{KeyID: optionalText(k.KeyID), Refused: k.Refused, FirstAt: k.FirstAt.UTC()}
	}
	return out
}
