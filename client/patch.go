package client

// KeyPatch is the body of UpdateKey (contract, section 3.1). Fields without a
// Change are unchanged.
type KeyPatch struct {
	Name        Change[string]            `json:"name,omitzero"`        // 1 to 255 characters; cannot be cleared
	Owner       Change[string]            `json:"owner,omitzero"`       // external ID; an owner that does not exist is created
	PlanID      Change[string]            `json:"plan_id,omitzero"`     // of the key itself; cleared: none
	Plan        Change[string]            `json:"plan,omitzero"`        // name of the plan, in place of PlanID
	RateLimit   Change[KeyRateLimit]      `json:"rate_limit,omitzero"`  // replaced as a whole; cleared: no limit
	Concurrency Change[int64]             `json:"concurrency,omitzero"` // 1 to 1000000 requests in flight; cleared: any number
	Metadata    Change[map[string]string] `json:"metadata,omitzero"`    // replaced as a whole, at most 16 entries
	ExpiresAt   Change[string]            `json:"expires_at,omitzero"`  // RFC 3339 time, or a date, which means its end; cleared: never
	AllowIps    Change[[]string]          `json:"allow_ips,omitzero"`   // networks, at most 256; replaced as a whole; cleared: all addresses
	DenyIps     Change[[]string]          `json:"deny_ips,omitzero"`    // networks, at most 256; replaced as a whole; cleared: none
}

// RateLimitPatch changes fields of a route's rate limit (contract, section 4.3).
// Fields without a Change are unchanged.
type RateLimitPatch struct {
	Sustained Change[string] `json:"sustained,omitzero"` // refill rate, <count>/<unit>
	Burst     Change[string] `json:"burst,omitzero"`     // capacity, <count>/<unit>
	Daily     Change[string] `json:"daily,omitzero"`     // maximum per UTC day, <count>/day
	Per       Change[string] `json:"per,omitzero"`       // key, or cleared: all callers share the limit
}

// RoutePatch is the body of UpdateRoute and UpdateRouteLimit. Fields without a Change are
// unchanged.
type RoutePatch struct {
	Path        Change[string]           `json:"path,omitzero"`         // cannot be cleared
	Methods     Change[[]string]         `json:"methods,omitzero"`      // replaced as a whole; cannot be cleared
	Auth        Change[string]           `json:"auth,omitzero"`         // key or none; cleared: key
	RateLimit   Change[RateLimitPatch]   `json:"rate_limit,omitzero"`   // cleared: the route has no limit
	Concurrency Change[ConcurrencyInput] `json:"concurrency,omitzero"`  // replaced as a whole; cleared: no bound of requests in flight
	Cost        Change[[]Cost]           `json:"cost,omitzero"`         // replaced as a whole; cleared: a request costs 1 of the meter requests
	Upstream    Change[string]           `json:"upstream,omitzero"`     // by name; cleared: default
	Split       Change[[]SplitInput]     `json:"split,omitzero"`        // replaced as a whole; cleared: that of the gateway
	StripPrefix Change[string]           `json:"strip_prefix,omitzero"` // cleared: the upstream gets the whole path
	Redirect    Change[RedirectInput]    `json:"redirect,omitzero"`     // replaced as a whole; cleared: none
	Respond     Change[RespondInput]     `json:"respond,omitzero"`      // replaced as a whole; cleared: none
	AllowIps    Change[[]string]         `json:"allow_ips,omitzero"`    // networks, at most 256; replaced as a whole; cleared: all addresses
	DenyIps     Change[[]string]         `json:"deny_ips,omitzero"`     // networks, at most 256; replaced as a whole; cleared: none

	RequestHeaders  Change[HeaderRulesInput] `json:"request_headers,omitzero"`  // replaced as a whole; cleared: none of the route
	ResponseHeaders Change[HeaderRulesInput] `json:"response_headers,omitzero"` // replaced as a whole; cleared: none of the route
	Validate        Change[string]           `json:"validate,omitzero"`         // off, report or enforce; null for that of the gateway
}

// AccountPatch is the body of UpdateAccount (contract, section 3.3). Fields without a Change
// are unchanged.
type AccountPatch struct {
	Name  Change[string]   `json:"name,omitzero"`  // 1 to 255 characters; cannot be cleared
	Plan  Change[string]   `json:"plan,omitzero"`  // starter, platform or scale; cannot be cleared
	Hosts Change[[]string] `json:"hosts,omitzero"` // replaced as a whole, at most 100; cleared: none
	State Change[string]   `json:"state,omitzero"` // active or suspended; cannot be cleared
}

// AccountDefaultsPatch is the body of UpdateAccountDefaults. Fields without a Change are unchanged.
type AccountDefaultsPatch struct {
	DefaultPlanID Change[string] `json:"default_plan_id,omitzero"` // cleared: none
	DefaultPlan   Change[string] `json:"default_plan,omitzero"`    // name of the plan, in place of DefaultPlanID
}

// OwnerPatch is the body of UpdateOwner. Fields without a Change are unchanged.
type OwnerPatch struct {
	Name      Change[string]            `json:"name,omitzero"`       // 1 to 255 characters
	PlanID    Change[string]            `json:"plan_id,omitzero"`    // cleared: none
	Plan      Change[string]            `json:"plan,omitzero"`       // name of the plan, in place of PlanID
	State     Change[string]            `json:"state,omitzero"`      // active or suspended; cannot be cleared
	Metadata  Change[map[string]string] `json:"metadata,omitzero"`   // replaced as a whole, at most 16 entries
	TimeZone  Change[string]            `json:"time_zone,omitzero"`  // IANA name; cleared: that of the plan
	AnchorDay Change[int64]             `json:"anchor_day,omitzero"` // 1 to 28; cleared: that of the plan
}

// PlanPatch is the body of UpdatePlan. Fields without a Change are unchanged.
type PlanPatch struct {
	Name      Change[string]           `json:"name,omitzero"`       // 1 to 64 characters of a-z 0-9 - _; cannot be cleared
	Title     Change[string]           `json:"title,omitzero"`      // 1 to 255 characters
	Limits    Change[[]PlanLimitInput] `json:"limits,omitzero"`     // replaced as a whole, at most 8; cleared: none
	TimeZone  Change[string]           `json:"time_zone,omitzero"`  // IANA name; cleared: UTC
	AnchorDay Change[int64]            `json:"anchor_day,omitzero"` // 1 to 28; cleared: 1
}
