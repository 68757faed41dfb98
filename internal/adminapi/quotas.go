package adminapi

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/calendar"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/plan"
)

type quotaUsageRecord struct {
	Limit       string     `json:"limit" doc:"Name of the limit." example:"per-month"`
	Plan        string     `json:"plan" doc:"Name of the plan that has the limit." example:"pro"`
	Meter       string     `json:"meter" doc:"What the quota counts." example:"requests"`
	Per         string     `json:"per" enum:"key,owner" doc:"key if each key counts by itself; owner if all keys of an owner count together."`
	Count       int64      `json:"count" doc:"Units of a window." example:"100000"`
	Grants      int64      `json:"grants" doc:"Units that were granted in addition, in this window." example:"5000"`
	Used        int64      `json:"used" doc:"Units that were used in this window." example:"41208"`
	Reserved    int64      `json:"reserved" doc:"Units that nodes hold ahead of their use: requests can still use them, unless the node crashed." example:"250"`
	Remaining   int64      `json:"remaining" doc:"count and grants less used and reserved, and at least 0." example:"63542"`
	WindowStart time.Time  `json:"window_start" doc:"When the window began; the beginning of 1970 for total."`
	WindowEnd   *time.Time `json:"window_end" doc:"When the window ends, and the next begins at 0; null for total, which never ends."`
	Overage     string     `json:"overage" enum:"refuse,allow" doc:"Whether requests beyond the count are refused, or only counted."`
}

type usageRecord struct {
	Data []quotaUsageRecord `json:"data" nullable:"false" doc:"One record for each quota, in the order of the plan. At most 1000."`

	Incomplete       bool   `json:"incomplete,omitempty" doc:"true if what was used in the last seconds is missing, because the store did not take it; otherwise absent."`
	IncompleteReason string `json:"incomplete_reason,omitempty" doc:"Why it is missing; absent if nothing is." example:"the newest records are missing, and are added as soon as the store takes them: the disk is full"`
}

type createGrantRequest struct {
	Limit  string  `json:"limit" minLength:"1" maxLength:"32" doc:"Name of the limit: a quota that counts the owner or the key." example:"per-month"`
	Units  int64   `json:"units" minimum:"1" maximum:"9007199254740991" doc:"Units to add to the present window." example:"5000"`
	Reason *string `json:"reason,omitempty" nullable:"true" minLength:"1" maxLength:"255" doc:"Why, for people." example:"Outage of 3 March"`
}

type grantRecord struct {
	GrantID     string     `json:"grant_id" doc:"Identifier of the grant." example:"grant_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Limit       string     `json:"limit" doc:"Name of the limit." example:"per-month"`
	Plan        string     `json:"plan" doc:"Name of the plan that had the limit when the units were granted." example:"pro"`
	Meter       string     `json:"meter" doc:"What the quota counts." example:"requests"`
	Units       int64      `json:"units" doc:"Units that were added." example:"5000"`
	Reason      *string    `json:"reason" doc:"Why, for people; null if no reason was given." example:"Outage of 3 March"`
	WindowStart time.Time  `json:"window_start" doc:"When the window began that the units were added to; the beginning of 1970 for total."`
	WindowEnd   *time.Time `json:"window_end" doc:"When that window ends, and the units with it; null for total, which never ends."`
	CreatedAt   time.Time  `json:"created_at" doc:"When the units were granted."`
}

// windowEnd returns the end of a window; nil for one that never ends.
func windowEnd(u calendar.Unit, end time.Time) *time.Time {
	if u == calendar.Total {
		return nil
	}
	return optionalTime(end)
}

func presentUsage(c *call, list []control.QuotaUsage) response {
	return ok(usageRecord{Data: presentQuotas(list), Incomplete: c.completeness.Missing != "", IncompleteReason: c.completeness.Missing})
}

// PresentQuotas returns the records of quotas, for package selfservice.
func PresentQuotas(list []control.QuotaUsage) any { return presentQuotas(list) }

func presentQuotas(list []control.QuotaUsage) []quotaUsageRecord {
	out := make([]quotaUsageRecord, len(list))
	for i := range list {
		u := &list[i]
		out[i] = quotaUsageRecord{
			Limit: u.Limit.Name, Plan: u.Plan, Meter: u.Limit.MeterOrDefault(), Per: string(u.Limit.Per), Count: u.Limit.Quota.Count,
			Grants: u.Grants, Used: u.Used, Reserved: u.Reserved, Remaining: u.Remaining(),
			WindowStart: u.WindowStart.UTC(), WindowEnd: windowEnd(u.Limit.Quota.Unit, u.WindowEnd), Overage: string(u.Limit.OverageOrDefault()),
		}
	}
	return out
}

func presentGrant(g *plan.Grant) grantRecord {
	return grantRecord{
		GrantID: g.ID, Limit: g.Limit, Plan: g.Plan, Meter: g.Meter, Units: g.Units, Reason: optionalText(g.Reason),
		WindowStart: g.WindowStart.UTC(), WindowEnd: windowEnd(g.Unit, g.WindowEnd), CreatedAt: g.CreatedAt.UTC(),
	}
}

func newGrantResponse(g *plan.Grant) response {
	return response{status: http.StatusCreated, body: presentGrant(g)}
}

func (a *API) quotaOperations() []operation {
	usage, grant := reflect.TypeFor[usageRecord](), reflect.TypeFor[grantRecord]()
	grants := reflect.TypeFor[list[grantRecord]]()
	const (
		exact    = "Exact up to the call on one node; on several, up to 2 seconds before it. A quota that was not used yet has its window by the calendar."
		granting = "Adds units to the present window of a quota. Limits, headers and percentages are then of the count and all grants together. With the window, the grants end."
		forgets  = "Grants are kept for two days after their window has ended; those of total stay."
	)
	return []operation{{
		id: "getOwnerUsage", method: http.MethodGet, path: "/v1/owners/{owner_id}/usage", tag: "Owners",
		summary:     "Get the usage of an owner",
		description: "Returns what all keys of the owner together have used of the quotas per owner of its plan, or of the default plans of gateways if it has none. " + exact,
		success:     http.StatusOK, result: usage,
		run: func(c *call) (response, error) { return a.usage(c, a.cfg.Control.OwnerUsage, c.params["owner_id"]) },
	}, {
		id: "createOwnerGrant", method: http.MethodPost, path: "/v1/owners/{owner_id}/grants", tag: "Owners",
		summary: "Grant units to an owner", description: granting,
		body: reflect.TypeFor[createGrantRequest](), replayable: true,
		success: http.StatusCreated, result: grant, errors: []int{http.StatusConflict},
		run: takes(func(c *call, req createGrantRequest) (response, error) {
			return grantUnits(c, a.cfg.Control.GrantToOwner, c.params["owner_id"], req.input())
		}),
	}, {
		id: "listOwnerGrants", method: http.MethodGet, path: "/v1/owners/{owner_id}/grants", tag: "Owners",
		summary: "List the grants to an owner", description: "Returns the grants to the owner, newest first. " + forgets,
		query: pageParams(), success: http.StatusOK, result: grants,
		run: func(c *call) (response, error) { return a.grants(c, a.cfg.Control.OwnerGrants, c.params["owner_id"]) },
	}, {
		id: "getKeyUsage", method: http.MethodGet, path: "/v1/keys/{key_id}/usage", tag: "Keys",
		summary: "Get the usage of a key",
		description: "Returns what the key, and the other keys of its rotation, have used of the quotas per key of its plan, of that of its owner, or of the default plans of gateways: the first that there is. " +
			"For a key without an owner, it includes the quotas per owner of the default plans, which count it alone. " + exact,
		success: http.StatusOK, result: usage,
		run: func(c *call) (response, error) { return a.usage(c, a.cfg.Control.KeyUsage, c.params["key_id"]) },
	}, {
		id: "createKeyGrant", method: http.MethodPost, path: "/v1/keys/{key_id}/grants", tag: "Keys",
		summary: "Grant units to a key", description: granting + " The keys of a rotation share them.",
		body: reflect.TypeFor[createGrantRequest](), replayable: true,
		success: http.StatusCreated, result: grant, errors: []int{http.StatusConflict},
		run: takes(func(c *call, req createGrantRequest) (response, error) {
			return grantUnits(c, a.cfg.Control.GrantToKey, c.params["key_id"], req.input())
		}),
	}, {
		id: "listKeyGrants", method: http.MethodGet, path: "/v1/keys/{key_id}/grants", tag: "Keys",
		summary: "List the grants to a key", description: "Returns the grants to the key and to the other keys of its rotation, newest first. " + forgets,
		query: pageParams(), success: http.StatusOK, result: grants,
		run: func(c *call) (response, error) { return a.grants(c, a.cfg.Control.KeyGrants, c.params["key_id"]) },
	}}
}

func (r *createGrantRequest) input() control.GrantInput {
	return control.GrantInput{Limit: r.Limit, Units: r.Units, Reason: value(r.Reason)}
}

// grantUnits grants units to an owner or a key. Finding the quota may take long, as a search does.
func grantUnits(c *call, to func(context.Context, *control.Actor, string, control.GrantInput) (*plan.Grant, error), subjectID string, in control.GrantInput) (response, error) {
	return respond(newGrantResponse)(searching(c, func() (*plan.Grant, error) {
		return to(withIdempotency(c, newGrantResponse), &c.actor, subjectID, in)
	}))
}

// usage shows the usage of an owner or a key.
func (a *API) usage(c *call, of func(context.Context, *control.Actor, string) ([]control.QuotaUsage, error), subjectID string) (response, error) {
	list, err := searching(c, func() ([]control.QuotaUsage, error) { return of(c.ctx, &c.actor, subjectID) })
	if err != nil {
		return response{}, err
	}
	return presentUsage(c, list), nil
}

// grants lists the grants to an owner or a key.
func (a *API) grants(c *call, of func(context.Context, *control.Actor, string, control.Page) ([]plan.Grant, error), subjectID string) (response, error) {
	return page(c, "grants", subjectID, func(p control.Page) ([]plan.Grant, error) {
		return of(c.ctx, &c.actor, subjectID, p)
	}, func(g *plan.Grant) (string, grantRecord) { return g.ID, presentGrant(g) })
}
