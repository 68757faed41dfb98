package adminapi

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/keygate/keygate/internal/canary"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

type startCanaryRequest struct {
	Upstream    string            `json:"upstream" minLength:"1" maxLength:"64" doc:"Name of the upstream of the gateway to which the canary sends requests." example:"next"`
	Routes      []string          `json:"routes,omitempty" nullable:"true" minItems:"1" maxItems:"1000" doc:"Identifiers of the routes. They have one upstream in common, with which the canary is compared, and no split. Default: all routes of the gateway that do not have the upstream of the canary." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Steps       []canaryPercent   `json:"steps,omitempty" nullable:"true" minItems:"1" maxItems:"20" doc:"What share of the callers the canary gets in each step, in percent: ascending. Default: 1, 5, 25 and 50."`
	Hold        *string           `json:"hold,omitempty" nullable:"true" minLength:"1" doc:"How long a step lasts at least: a Go duration of 1m to 24h. Default: 10m." example:"10m"`
	Abort       *canaryAbortInput `json:"abort,omitempty"`
	MinRequests *int64            `json:"min_requests,omitempty" nullable:"true" minimum:"1" maximum:"1000000000" doc:"How many requests each side must have had before a step ends. It never delays an abort. Default: 1000." example:"1000"`
	WhenDone    *string           `json:"when_done,omitempty" nullable:"true" enum:"promote,hold" doc:"What happens after the last step: promote gives the routes the upstream; hold keeps the share until a call promotes or aborts the canary. Default: hold." example:"promote"`
}

// canaryAbortInput says when a canary is aborted.
type canaryAbortInput struct {
	_       struct{}            `nullable:"true" doc:"When the canary is aborted: for errors, latency or both. Default: for errors, more than 1 point."`
	Errors  *canaryErrorsInput  `json:"errors,omitempty"`
	Latency *canaryLatencyInput `json:"latency,omitempty"`
}

type canaryErrorsInput struct {
	_        struct{} `nullable:"true"`
	MoreThan float64  `json:"more_than" minimum:"0" maximum:"100" doc:"By how many percentage points the share of failed requests may be greater than on the other upstream." example:"1.0"`
}

type canaryLatencyInput struct {
	_        struct{} `nullable:"true"`
	P95Ratio float64  `json:"p95_ratio" exclusiveMinimum:"1" maximum:"1000" doc:"A request is slow if it takes more than this times the 95th percentile of the other upstream; more than 5 % of them abort the canary." example:"1.5"`
}

// canaryPercent is the share of a step.
type canaryPercent struct{ gateway.Percent }

// UnmarshalJSON reads a number.
func (p *canaryPercent) UnmarshalJSON(b []byte) error { return p.Percent.UnmarshalJSON(b) }

// Schema returns the schema of the number.
func (canaryPercent) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeNumber, Format: "double", Minimum: bound(0), Maximum: bound(100), Examples: []any{5},
		Description: "Percentage with at most 2 decimals. Of a step, it is more than 0 and less than 100.",
	}
}

// CanaryRecord is a canary. It is exported so that it can be embedded; see KeyRecord.
type CanaryRecord struct {
	CanaryID    string                 `json:"canary_id" doc:"Identifier of the canary." example:"can_01jz8y5c3te9b8r2m6q4v7x0aa"`
	GatewayID   string                 `json:"gateway_id" doc:"Gateway of the canary." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Upstream    string                 `json:"upstream" doc:"Upstream to which the canary sends requests." example:"next"`
	Other       string                 `json:"other" doc:"Upstream of the routes, with which the canary is compared." example:"default"`
	Routes      []string               `json:"routes" nullable:"false" doc:"Identifiers of the routes." example:"rt_01jz8y5c3te9b8r2m6q4v7x0bb"`
	Steps       []canaryPercent        `json:"steps" nullable:"false" doc:"Share of the callers in each step, in percent."`
	Hold        string                 `json:"hold" doc:"How long a step lasts at least, as given." example:"10m"`
	Abort       canaryAbortRecord      `json:"abort"`
	MinRequests uint64                 `json:"min_requests" doc:"How many requests each side must have had before a step ends." example:"1000"`
	WhenDone    string                 `json:"when_done" enum:"promote,hold" doc:"What happens after the last step."`
	State       string                 `json:"state" enum:"running,paused,held,promoted,aborted" doc:"running: it is judged; paused: callers stay on their sides, and nothing is counted; held: after the last step, or at 100 %, until a call or a push ends it; promoted and aborted: it has ended."`
	Step        int                    `json:"step" doc:"Number of the present step, or of the last one, from 1." example:"2"`
	Weight      *float64               `json:"weight" doc:"Share of the callers that the canary has at present, in percent; null if it has ended." example:"5"`
	Progress    []canaryProgressRecord `json:"progress" nullable:"false" doc:"The steps that have begun."`
	Explanation string                 `json:"explanation" doc:"What was decided last and why, in words." example:"18 of 290 failed on next (6.2 %), 31 of 28,710 on default (0.1 %): at least 2.0 points more; allowed 1.0"`
	Lines       []string               `json:"lines" nullable:"false" doc:"What to commit, once the canary is held at 100 %: the entries of the routes in a configuration file, which change nothing but the upstream, or what to add to the operations of an OpenAPI document. At most 256 KiB; the explanation says how many routes have no line. Otherwise empty." example:"{path: /orders, methods: [GET], upstream: next}"`
	CreatedAt   time.Time              `json:"created_at" doc:"When the canary was started."`
	EndedAt     *time.Time             `json:"ended_at" doc:"When it was promoted or aborted; null before."`
}

// canaryAbortRecord says when a canary is aborted.
type canaryAbortRecord struct {
	Errors  *canaryErrorsInput  `json:"errors"`
	Latency *canaryLatencyInput `json:"latency"`
}

type canaryProgressRecord struct {
	Step   int                 `json:"step" doc:"Number of the step, from 1." example:"1"`
	Weight canaryPercent       `json:"weight"`
	Since  time.Time           `json:"since" doc:"When the step began."`
	Next   canaryFiguresRecord `json:"next"`
	Other  canaryFiguresRecord `json:"other"`
}

// canaryFiguresRecord is what was counted for one of the upstreams in a step.
type canaryFiguresRecord struct {
	Requests uint64   `json:"requests" doc:"Requests that ended, without those of callers that are left out." example:"290"`
	Bad      uint64   `json:"bad" doc:"Of these, those that failed: 5xx of the upstream, 502 and 504." example:"18"`
	P95      *float64 `json:"p95_ms" doc:"95th percentile of the time to the response, in milliseconds; null without requests." example:"41.5"`
}

type startedCanaryRecord struct {
	CanaryRecord
	Warnings []string `json:"warnings,omitempty" doc:"Likely mistakes, such as a step with too few callers; absent if there are none."`
}

const (
	canariesPath = "/v1/gateways/{gateway_id}/canaries"
	canaryPath   = canariesPath + "/{canary_id}"
)

func (a *API) canaryOperations() []operation {
	record := reflect.TypeFor[CanaryRecord]()
	change := func(id, verb, summary, description string, run func(*call) (response, error)) operation {
		return operation{
			id: id, method: http.MethodPost, path: canaryPath + "/" + verb, tag: "Canaries",
			summary: summary, description: description + " Takes no request body.",
			replayable: true, ifMatch: true, success: http.StatusOK, result: record, hasETag: true, errors: []int{http.StatusConflict},
			run: run,
		}
	}
	return []operation{{
		id: "listCanaries", method: http.MethodGet, path: canariesPath, tag: "Canaries",
		summary: "List canaries", description: "Returns the canaries of a gateway, newest first. Of those that have ended, the newest 100 are kept.",
		query: pageParams(), success: http.StatusOK, result: reflect.TypeFor[list[CanaryRecord]](),
		run: a.listCanaries,
	}, {
		id: "startCanary", method: http.MethodPost, path: canariesPath, tag: "Canaries",
		summary: "Start a canary",
		description: "Sends a growing share of the callers of some routes to another upstream, and compares both. Callers stay on their side. " +
			"If the other upstream is certainly worse, the canary is aborted, and all callers go back; after each step that is not, the share grows. " +
			"A gateway has one canary that has not ended, and none on a route with a split: otherwise it is a 409.",
		body: reflect.TypeFor[startCanaryRequest](), replayable: true,
		success: http.StatusCreated, result: reflect.TypeFor[startedCanaryRecord](), hasETag: true, hasLocation: true, errors: []int{http.StatusConflict},
		run: takes(a.startCanary),
	}, {
		id: "getCanary", method: http.MethodGet, path: canaryPath, tag: "Canaries",
		summary: "Get a canary", description: "Returns one canary, with what was counted up to some seconds ago. The ETag says nothing about that.",
		success: http.StatusOK, result: record, hasETag: true, hasState: true,
		run: a.getCanary,
	},
		change("pauseCanary", "pause", "Pause a canary", "Callers stay on their sides, and nothing is counted, until the canary is resumed. One that does not run is a 409.", a.changeCanary((*control.Service).PauseCanary)),
		change("resumeCanary", "resume", "Resume a canary", "A paused canary goes on with its step where it was, without routes that are gone or have a split or another upstream now; one that was held begins its last step again, or is held at 100 % again. If no route is left, it is a 409.", a.changeCanary((*control.Service).ResumeCanary)),
		change("promoteCanary", "promote", "Promote a canary", "Gives the routes the upstream of the canary, and ends it. If the routes come from a repository or a file, it is held at 100 % instead, with the lines to commit; the push of these ends it.", a.changeCanary((*control.Service).PromoteCanary)),
		change("abortCanary", "abort", "Abort a canary", "Ends the canary: all callers go to the upstream of the routes again.", a.changeCanary((*control.Service).AbortCanary)),
	}
}

func presentCanary(c *canary.Canary) CanaryRecord {
	p := &c.Plan
	r := CanaryRecord{
		CanaryID: c.ID, GatewayID: c.GatewayID, Upstream: p.Upstream, Other: p.Other, Routes: orEmpty(p.Routes), Hold: p.Hold, MinRequests: p.MinRequests, WhenDone: "hold",
		Steps: make([]canaryPercent, len(p.Steps)), State: string(c.State), Step: c.Step + 1, Progress: make([]canaryProgressRecord, len(c.Progress)),
		Explanation: c.Explanation, Lines: orEmpty(c.Lines), CreatedAt: c.CreatedAt.UTC(), EndedAt: optionalTime(c.EndedAt),
	}
	if p.Promote {
		r.WhenDone = "promote"
	}
	if p.MoreThan != nil {
		r.Abort.Errors = &canaryErrorsInput{MoreThan: *p.MoreThan}
	}
	if p.P95Ratio != nil {
		r.Abort.Latency = &canaryLatencyInput{P95Ratio: *p.P95Ratio}
	}
	for i, s := range p.Steps {
		r.Steps[i] = canaryPercent{s}
	}
	if !c.State.Done() {
		r.Weight = new(float64(c.Weight()) / 100)
	}
	for i := range c.Progress {
		of := &c.Progress[i]
		r.Progress[i] = canaryProgressRecord{
			Step: of.Step, Weight: canaryPercent{of.Weight}, Since: of.Since.UTC(),
			Next: canaryFiguresRecord(of.Next), Other: canaryFiguresRecord(of.Other),
		}
	}
	return r
}

func canaryResponse(c *canary.Canary) response { return withETag(presentCanary(c), c.Version) }

func (a *API) listCanaries(c *call) (response, error) {
	gatewayID := c.params["gateway_id"]
	return page(c, "canaries", gatewayID, func(p control.Page) ([]canary.Canary, error) {
		return a.cfg.Control.Canaries(c.ctx, &c.actor, gatewayID, p)
	}, func(of *canary.Canary) (string, CanaryRecord) { return of.ID, presentCanary(of) })
}

func (a *API) getCanary(c *call) (response, error) {
	return respond(canaryResponse)(a.cfg.Control.Canary(c.ctx, &c.actor, c.params["gateway_id"], c.params["canary_id"]))
}

func (a *API) startCanary(c *call, req startCanaryRequest) (response, error) {
	in := control.CanaryInput{Upstream: req.Upstream, Routes: req.Routes, Hold: value(req.Hold), MinRequests: req.MinRequests, WhenDone: value(req.WhenDone)}
	if req.Steps != nil {
		in.Steps = make([]gateway.Percent, len(req.Steps))
	}
	for i, s := range req.Steps {
		in.Steps[i] = s.Percent
	}
	if abort := req.Abort; abort != nil {
		in.Abort = &control.CanaryAbort{}
		if abort.Errors != nil {
			in.Abort.Errors = &abort.Errors.MoreThan
		}
		if abort.Latency != nil {
			in.Abort.Latency = &abort.Latency.P95Ratio
		}
	}
	present := func(s *control.StartedCanary) response {
		res := withETag(startedCanaryRecord{presentCanary(&s.Canary), s.Warnings}, s.Version)
		return res.created("/v1/gateways/" + s.GatewayID + "/canaries/" + s.ID)
	}
	return respond(present)(searching(c, func() (*control.StartedCanary, error) { // it counts the callers of the last hour
		return a.cfg.Control.StartCanary(withIdempotency(c, present), &c.actor, c.params["gateway_id"], in)
	}))
}

// canaryChange is an operation that changes a canary.
type canaryChange = func(s *control.Service, ctx context.Context, actor *control.Actor, gatewayID, canaryID string, m control.Match) (*canary.Canary, error)

// changeCanary returns the call that changes a canary by an operation.
func (a *API) changeCanary(change canaryChange) func(*call) (response, error) {
	return func(c *call) (response, error) {
		return respond(canaryResponse)(change(a.cfg.Control, withIdempotency(c, canaryResponse), &c.actor, c.params["gateway_id"], c.params["canary_id"], c.match))
	}
}
