package client

// KeyPatch is the body of UpdateKey (contract, section 3.1). Fields without a
// Change are unchanged.
type KeyPatch struct {
	Name      Change[string]            `json:"name,omitzero"`       // 1 to 255 characters; cannot be cleared
	Owner     Change[string]            `json:"owner,omitzero"`      // at most 255 printable ASCII characters
	RateLimit Change[KeyRateLimit]      `json:"rate_limit,omitzero"` // replaced as a whole; cleared: no limit
	Metadata  Change[map[string]string] `json:"metadata,omitzero"`   // replaced as a whole, at most 16 entries
	ExpiresAt Change[string]            `json:"expires_at,omitzero"` // RFC 3339 time, or a date, which means its end; cleared: never
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
	Path      Change[string]         `json:"path,omitzero"`       // cannot be cleared
	Methods   Change[[]string]       `json:"methods,omitzero"`    // replaced as a whole; cannot be cleared
	Auth      Change[string]         `json:"auth,omitzero"`       // key or none; cleared: key
	RateLimit Change[RateLimitPatch] `json:"rate_limit,omitzero"` // cleared: the route has no limit
}

// AccountPatch is the body of UpdateAccount (contract, section 3.3). Fields without a Change
// are unchanged.
type AccountPatch struct {
	Name  Change[string]   `json:"name,omitzero"`  // 1 to 255 characters; cannot be cleared
	Plan  Change[string]   `json:"plan,omitzero"`  // starter, platform or scale; cannot be cleared
	Hosts Change[[]string] `json:"hosts,omitzero"` // replaced as a whole, at most 100; cleared: none
	State Change[string]   `json:"state,omitzero"` // active or suspended; cannot be cleared
}
