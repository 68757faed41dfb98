package adminapi

import (
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/requestlog"
)

// loggedRequestRecord is one request of the log.
type loggedRequestRecord struct {
	RequestID  string         `json:"request_id" doc:"Identifier of the request, which the client got in the X-Request-Id header." example:"req_01jz8y5c3te9b8r2m6q4v7x0ff"`
	Time       time.Time      `json:"time" doc:"When the request was received."`
	GatewayID  *string        `json:"gateway_id" doc:"Gateway that was called." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	RouteID    *string        `json:"route_id" doc:"Route that was called; null if no route matched, or the request was refused before the route was known." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	KeyID      *string        `json:"key_id" doc:"Identifier of the key that was used, also if it had expired, or had been revoked within the 24 hours before; decision.message then says so. null if the account has no such key." example:"key_01jz8y5c3te9b8r2m6q4v7x0dd"`
	KeyPrefix  *string        `json:"key_prefix" doc:"Start of the key that was used; null if there was none, or it was not a well-formed key." example:"kg_4tQx9Z"`
	Credential *string        `json:"credential" enum:"key,token" doc:"What the client sent: a key or a token; null for neither." example:"token"`
	IssuerID   *string        `json:"issuer_id" doc:"Issuer of the token, or whose token it was said to be, if it was refused; null without a token, and if it names no issuer of the gateway." example:"iss_01jz8y5c3te9b8r2m6q4v7x0ii"`
	Subject    *string        `json:"subject" doc:"Claim sub of the token, or its SHA-256 if it is longer than 255 bytes; null without a token, and for one that was refused." example:"ada"`
	Method     string         `json:"method" doc:"HTTP method." example:"GET"`
	Path       string         `json:"path" doc:"Path without the query." example:"/orders/17"`
	ClientIP   string         `json:"client_ip" doc:"IP address of the client." example:"203.0.113.7"`
	Host       *string        `json:"host" doc:"Host that the client addressed, without a port, for a 404 or 405; otherwise null." example:"api.example.com"`
	Status     int            `json:"status" doc:"HTTP status of the response." example:"429"`
	DurationMS float64        `json:"duration_ms" doc:"Time from the request headers to the last byte of the response, in milliseconds." example:"0.08"`
	Decision   DecisionRecord `json:"decision" doc:"Why the request was refused or failed; for a request that is kept for its cost or its attempts, what ended it."`
	LeftOut    int64          `json:"left_out" doc:"Number of other requests of the same second that were refused or failed and are not in the list because there were more than 1,000." example:"0"`

	Cost       map[string]requestCostRecord `json:"cost" nullable:"true" doc:"What the request was charged by the cost of its route, by meter; null if nothing."`
	Side       *string                      `json:"side" doc:"Name of the upstream that a split of the route or of the gateway decided for; null without a split." example:"next"`
	SideReason *string                      `json:"side_reason" doc:"Why the split decided so, in words; null without a split." example:"5 % of callers, by the key"`

	Attempts []requestAttemptRecord `json:"attempts" nullable:"true" doc:"Attempts of a request to an upstream with several targets, in their order, if there were several or the only one failed; at most 6. null for other requests."`

	NotTried      []requestTargetRecord `json:"not_tried" nullable:"true" doc:"Targets that the request could not be sent to because of their state, as it was when its last target was to be chosen: in the order of the configuration, at most 4. Kept for requests with attempts, and for those for which there was no target; null if there are none."`
	NotTriedCount int                   `json:"not_tried_count" doc:"Number of all such targets." example:"1"`
	AllUnhealthy  bool                  `json:"all_unhealthy" doc:"Whether every target of the upstream was unhealthy, ejected or drained, so that the request was sent to any that was not drained. Kept for requests with attempts." example:"false"`
}

// requestTargetRecord is a target that a request was not sent to because of its state.
type requestTargetRecord struct {
	Target      string     `json:"target" doc:"Host and port of the target, as in its URL, or its address." example:"10.0.0.3:8443"`
	State       string     `json:"state" doc:"Why: unhealthy (its checks fail, or its address is not allowed), ejected, half_open (its ejection is over, and one request at a time tries it), waiting (for its first check) or draining. Further values may be added." example:"ejected"`
	Reason      *string    `json:"reason" doc:"Of an unhealthy or ejected target: why, as reason in the status of a target; otherwise null." example:"connect"`
	Since       *time.Time `json:"since" doc:"When an unhealthy or ejected target became so; otherwise null."`
	Until       *time.Time `json:"until" doc:"When its ejection ends; null without one."`
	Failures    *int       `json:"failures" doc:"Number of failures in a row that led to the ejection; null without one." example:"5"`
	Explanation string     `json:"explanation" doc:"The same in words." example:"10.0.0.3:8443 (ejected 12:00:03 after 5 failures, for 10 s)"`
}

// requestAttemptRecord is one attempt of a request at a target.
type requestAttemptRecord struct {
	Target      string                `json:"target" doc:"Host and port of the target, as in its URL." example:"10.0.0.1:8443"`
	Result      string                `json:"result" doc:"How the attempt ended: ok, connect, reset, timeout, 502, 503, 504, grpc_unavailable, address_not_allowed, unusable (the request was declined in order, or the response cannot be used), or canceled if that says nothing about the target. Further values may be added." example:"connect"`
	Reason      *string               `json:"reason" doc:"Why it failed, as reason of decision; null if that is not known or it did not fail." example:"connection_refused"`
	Status      *int                  `json:"status" doc:"HTTP status of the target's response; null if there was none." example:"503"`
	DurationMS  float64               `json:"duration_ms" doc:"Time until the headers of the response, or until the attempt failed, in milliseconds." example:"0.31"`
	Ejected     *targetEjectionRecord `json:"ejected" doc:"If the failure, with those before it, led to an ejection of the target: that ejection. Otherwise null."`
	Explanation string                `json:"explanation" doc:"How the attempt ended, in words." example:"attempt 1 → 10.0.0.1:8443: connection refused (ejected 12:00:03 after 5 failures, for 10 s)"`
}

// targetEjectionRecord is an ejection of a target.
type targetEjectionRecord struct {
	_        struct{}  `nullable:"true"`
	At       time.Time `json:"at" doc:"When the target was ejected."`
	Until    time.Time `json:"until" doc:"When the ejection ends."`
	Failures int       `json:"failures" doc:"Number of failures in a row that led to it." example:"5"`
}

// requestCostRecord is what a request was charged of one meter.
type requestCostRecord struct {
	Units       int64   `json:"units" doc:"Units that the request costs." example:"1204"`
	Reserved    int64   `json:"reserved" doc:"Units that were taken before the request was forwarded." example:"2000"`
	Unknown     *string `json:"unknown" doc:"Why the cost is not known, so that units are what the route charges for an unknown cost: incomplete, encoding, too_long, invalid, not_a_number, negative, too_large or missing. Further values may be added. null if the cost is known." example:"incomplete"`
	Explanation string  `json:"explanation" doc:"How the cost came about, in words." example:"1,204 tokens: prompt_tokens 1,000 × 1, completion_tokens 51 × 4; reserved 2,000"`
}

// DecisionRecord is what ended a request. It is exported for the generator of the API document, which reads embedded
// structs only if they are.
type DecisionRecord struct {
	Check          string            `json:"check" doc:"Check that refused the request, or cause of the failure: host, address, maintenance, key, token, gateway, owner, route, scope, limit, upstream, timeout or internal; client if the client closed its connection before the response." example:"limit"`
	Code           string            `json:"code" doc:"Code in the response: for 401 and 403 the code field, otherwise the error field; upstream_status if the response is the upstream's, and abandoned if there was none." example:"rate_limit_exceeded"`
	Message        string            `json:"message" doc:"Explanation of the decision." example:"the route's limit of 50 was used up"`
	LimitScope     *string           `json:"limit_scope" enum:"key,route,daily,global,plan,anonymous,self_service,concurrency" doc:"If a limit refused the request: scope of that limit. Otherwise this field, limit, remaining and passes_at are null."`
	LimitName      *string           `json:"limit_name" doc:"If a limit of a plan refused the request: plan and limit. For the scope concurrency also route or key. Otherwise null." example:"pro.per-minute"`
	Limit          *int64            `json:"limit" doc:"Capacity of the limit." example:"50"`
	Remaining      *int64            `json:"remaining" doc:"Remaining requests at that time." example:"0"`
	PassesAt       *time.Time        `json:"passes_at" doc:"When the request would have passed."`
	UpstreamStatus *int              `json:"upstream_status" doc:"HTTP status of the upstream's response; null if there was none." example:"503"`
	Reason         *string           `json:"reason" doc:"If the upstream could not be reached or did not respond: why, such as connection_refused, name_not_found, certificate_rejected, malformed_response, closed_early, all_drained or timeout. If the request was admitted but could not go on: key_revoked, key_expired, key_not_allowed, owner_suspended, gateway_gone, target_gone or lease_lost. If it was refused for its key: no_key, key_without_scheme, key_in_other_header, mistyped_key, not_a_key, unknown_key or address_failed. If it was refused for its token: token_refused, key_for_token, tokens_failed or tokens_busy. If it did not meet the OpenAPI document of the gateway: schema_mismatch. Further values may be added. Null for other decisions." example:"connection_refused"`
	ByDefault      *bool             `json:"by_default" doc:"For a 404 or 405: whether the gateway got the request as the default gateway, because no gateway has the host. Null for other decisions."`
	Nearest        []nearRouteRecord `json:"nearest_routes" nullable:"false" doc:"For a 404 or 405: the routes of the gateway that come nearest to the request, as they are now, the nearest first; at most 3. Empty for other decisions."`
	Detail         *string           `json:"detail" doc:"Text of the error behind reason, with addresses. Always null unless the key belongs to the account default." example:"dial tcp 10.0.0.7:8080: connect: connection refused"`
}

// nearRouteRecord is a route that comes near to a request.
type nearRouteRecord struct {
	Path    string   `json:"path" doc:"Path of the route." example:"/orders/{id}"`
	Methods []string `json:"methods" nullable:"false" doc:"Methods of the route." example:"GET,POST"`
	Why     string   `json:"why" doc:"Why the route does not match the request." example:"the path of the request ends with a slash, and its path does not"`
}

func requestFilters() []queryParam {
	return append([]queryParam{
		{name: "gateway_id", doc: "Only requests of this gateway.", schema: textSchema(), example: "gw_01jz8y5c3te9b8r2m6q4v7x0aa"},
		{name: "route_id", doc: "Only requests of this route.", schema: textSchema(), example: "rt_01jz8y5c3te9b8r2m6q4v7x0bb"},
		{name: "key_id", doc: "Only requests with this key.", schema: textSchema(), example: "key_01jz8y5c3te9b8r2m6q4v7x0dd"},
		{
			name: "status", doc: "Only requests with this response status.", example: 429,
			schema: &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: bound(400), Maximum: bound(599)},
			check: func(v string) error {
				if n, err := strconv.Atoi(v); err != nil || n < 400 || n > 599 || strconv.Itoa(n) != v {
					return fault.Invalid("status", "must be a status code between 400 and 599")
				}
				return nil
			},
		},
		enumParam("result", "Only requests with this result. charged: instead of refused and failed requests, those that have a cost and were neither. retried: requests that had several attempts at targets of an upstream, whatever their end.", requestlog.Results()...),
	}, timeRangeParams("requests")...)
}

func (a *API) requestOperations() []operation {
	return []operation{{
		id: "listRequests", method: http.MethodGet, path: "/v1/requests", tag: "Traffic",
		summary:     "List refused and failed requests",
		description: "Returns the requests of the last 24 hours that were refused (401, 403, 429, and 404 or 405 by the gateway itself), failed (5xx), or were cut off because their key or gateway had ended, newest first, each with the reason. Requests for a host without a gateway are in the list of the account default. If there are more than 1,000 of them in a second, the list is a sample. With result=charged, returns other requests that have a cost, at most 100 of a second. With result=retried, returns requests that had several attempts, at most 1,000 of a second beside those that failed.",
		query:       append(pageParams(), requestFilters()...), success: http.StatusOK, result: reflect.TypeFor[recordedList[loggedRequestRecord]](),
		run: a.listRequests,
	}, {
		id: "streamRequests", method: http.MethodGet, path: "/v1/requests/stream", tag: "Traffic",
		summary: "Follow refused and failed requests",
		description: "Sends each request that is refused or fails from now on, as server-sent events: request, whose data is the record of the list, and skipped, whose data is {\"count\": n}, " +
			"if more came than could be read or are kept in the log. Ends when the key or session of the call ends. An account can have 8 such streams; further ones are 429.",
		query: streamFilters(), success: http.StatusOK, media: []string{eventType}, errors: []int{http.StatusTooManyRequests},
		run: a.streamRequests,
	}, {
		id: "getRequest", method: http.MethodGet, path: "/v1/requests/{request_id}", tag: "Traffic",
		summary: "Get a refused or failed request", description: "Returns why a request was refused or failed, what a request was charged by the cost of its route, or which attempts it had. For a refusal by a rate limit, also returns when the request would have passed.",
		success: http.StatusOK, result: reflect.TypeFor[loggedRequestRecord](),
		run: a.getRequest,
	}}
}

func (a *API) listRequests(c *call) (response, error) {
	since, until, err := c.timeRange()
	if err != nil {
		return response{}, err
	}
	status, _ := strconv.Atoi(c.query.Get("status")) // checked by requestFilters; 0 if not given
	f := requestlog.Filter{
		GatewayID: c.query.Get("gateway_id"), RouteID: c.query.Get("route_id"), KeyID: c.query.Get("key_id"),
		Status: status, Result: c.query.Get("result"), Since: since, Until: until,
	}
	return page(c, "requests", c.cursorBinding(requestFilters()), func(p control.Page) ([]requestlog.Request, error) {
		return searching(c, func() ([]requestlog.Request, error) { return a.cfg.Control.Requests(c.ctx, &c.actor, f, p) })
	}, func(r *requestlog.Request) (string, loggedRequestRecord) { return r.ID, presentRequest(r) })
}

func (a *API) getRequest(c *call) (response, error) {
	return show(presentRequest)(a.cfg.Control.Request(c.ctx, &c.actor, c.params["request_id"]))
}

func presentRequest(r *requestlog.Request) loggedRequestRecord {
	return loggedRequestRecord{
		RequestID: r.ID, Time: r.Time.UTC(), GatewayID: optionalText(r.GatewayID), RouteID: optionalText(r.RouteID), KeyID: optionalText(r.KeyID), KeyPrefix: optionalText(r.KeyPrefix),
		Credential: optionalText(r.Credential), IssuerID: optionalText(r.IssuerID), Subject: optionalText(r.Subject),
		Method: r.Method, Path: r.Path, ClientIP: r.ClientIP, Host: optionalText(r.Host), Status: r.Status, DurationMS: r.DurationMS,
		LeftOut: r.LeftOut, Side: optionalText(r.Side), SideReason: optionalText(r.SideReason),
		Decision: presentDecision(&r.Decision), Cost: presentCosts(r.Costs), Attempts: presentAttempts(r.Attempts),
		NotTried: presentUntried(r.Untried.Targets), NotTriedCount: r.Untried.Count, AllUnhealthy: r.Untried.AllUnhealthy,
	}
}

// presentUntried returns nil for none.
func presentUntried(targets []accesslog.UntriedTarget) []requestTargetRecord {
	if len(targets) == 0 {
		return nil
	}
	at := func(ms int64) *time.Time {
		if ms == 0 {
			return nil
		}
		t := time.UnixMilli(ms).UTC()
		return &t
	}
	out := make([]requestTargetRecord, len(targets))
	for i := range targets {
		t := &targets[i]
		out[i] = requestTargetRecord{Target: t.Target, State: t.State, Reason: optionalText(t.Reason), Since: at(t.Since), Explanation: requestlog.ExplainUntried(t)}
		if t.Failures != 0 {
			out[i].Until, out[i].Failures = at(t.Until), &t.Failures
		}
	}
	return out
}

// presentAttempts returns nil for none.
func presentAttempts(attempts []accesslog.Attempt) []requestAttemptRecord {
	if len(attempts) == 0 {
		return nil
	}
	out := make([]requestAttemptRecord, len(attempts))
	for i := range attempts {
		a := &attempts[i]
		out[i] = requestAttemptRecord{
			Target: a.Target, Result: a.Result, Reason: optionalText(a.Reason.String()), DurationMS: float64(a.Took) / float64(time.Millisecond), Explanation: requestlog.ExplainAttempt(i+1, a),
		}
		if a.Status != 0 {
			status := int(a.Status)
			out[i].Status = &status
		}
		if a.Ejected != 0 {
			out[i].Ejected = &targetEjectionRecord{At: time.UnixMilli(a.Ejected).UTC(), Until: time.UnixMilli(a.EjectedUntil).UTC(), Failures: a.Failures}
		}
	}
	return out
}

// presentCosts returns nil for none.
func presentCosts(costs []accesslog.Cost) map[string]requestCostRecord {
	if len(costs) == 0 {
		return nil
	}
	out := make(map[string]requestCostRecord, len(costs))
	for i := range costs {
		c := &costs[i]
		out[c.Meter] = requestCostRecord{Units: c.Units, Reserved: c.Reserved, Unknown: optionalText(c.Unknown), Explanation: requestlog.ExplainCost(c)}
	}
	return out
}

func presentDecision(d *requestlog.Decision) DecisionRecord {
	out := DecisionRecord{
		Check: d.Check, Code: d.Code, Message: d.Message, LimitScope: optionalText(d.LimitScope), LimitName: optionalText(d.LimitName), PassesAt: optionalTime(d.PassesAt),
		Reason: optionalText(d.Reason), Detail: optionalText(d.Detail), Nearest: make([]nearRouteRecord, len(d.Nearest)),
	}
	for i, near := range d.Nearest {
		out.Nearest[i] = nearRouteRecord(near)
	}
	if d.Check == "route" {
		out.ByDefault = &d.ByDefault
	}
	if d.LimitScope != "" {
		out.Limit, out.Remaining = &d.Limit, &d.Remaining
	}
	if d.UpstreamStatus != 0 {
		out.UpstreamStatus = &d.UpstreamStatus
	}
	return out
}
