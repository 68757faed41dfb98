package plan

import (
	"fmt"
	"slices"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Subject is whom a limit counts: each by itself.
type Subject string

// The subjects.
const (
	PerKey   Subject = "key"   // a key, with those that it was rotated from and to
	PerOwner Subject = "owner" // all keys of an owner together; a key without one by itself
)

// Limit is one limit of a plan. It is comparable with Equal, and its JSON form is the stored one.
type Limit struct {
	Name string `json:"name"` // unique in the plan

	// Either a rate, or a quota, or a number of requests in flight.
	Sustained   ratelimit.UnitRate `json:"sustained,omitzero"`
	Burst       ratelimit.UnitRate `json:"burst,omitzero"`
	Quota       Quota              `json:"quota,omitzero"`
	Concurrency int64              `json:"concurrency,omitempty"` // 1 to ratelimit.MaxConcurrency; 0 for another kind

	Meter   string  `json:"meter,omitempty"`   // what it counts; "" for Requests
	Overage Overage `json:"overage,omitempty"` // of a quota; "" for OverageRefuse
	WarnAt  []int   `json:"warn_at,omitzero"`  // of a quota: percentages in rising order; nil for DefaultWarnAt
	Per     Subject `json:"per"`

	// Where the limit applies: to one gateway, or to all of the account if GatewayID is "", and there to the routes
	// with these paths, or to all. "/prefix/*" stands for every path below "/prefix".
	GatewayID string   `json:"gateway_id,omitempty"`
	Routes    []string `json:"routes,omitempty"`
}

const maxLimitName = 32

// Rate returns the limit as the configuration of a token bucket.
func (l *Limit) Rate() ratelimit.Config {
	return ratelimit.Config{Sustained: l.Sustained.Rate, Burst: l.Burst.Rate}
}

// Bucket returns the token bucket of a limit that is a rate.
func (l *Limit) Bucket() ratelimit.Params {
	if l.Meter == "" {
		return ratelimit.Compile(l.Rate())
	}
	return ratelimit.CompileMeter(l.Rate())
}

// Equal reports whether l and o have the same effect and are written in the same way.
func (l *Limit) Equal(o *Limit) bool {
	return l.Name == o.Name && l.Sustained == o.Sustained && l.Burst == o.Burst && l.Concurrency == o.Concurrency && l.sameQuota(o) && l.MeterOrDefault() == o.MeterOrDefault() && l.Per == o.Per && l.GatewayID == o.GatewayID &&
		slices.Equal(l.Routes, o.Routes)
}

// LimitInput is a limit as users write it. "" is an absent property.
type LimitInput struct {
	Name, Sustained, Burst, Quota, Meter, Overage, Per, GatewayID string

	Concurrency *int64
	WarnAt      []int // nil if it is absent
	Routes      []string
}

// ParseLimits parses the limits of a plan. The error is a validation error that names every invalid field.
func ParseLimits(in []LimitInput) ([]Limit, error) {
	limits, errs := make([]Limit, 0, min(len(in), MaxLimits)), []error(nil)
	if len(in) > MaxLimits {
		return nil, tooManyLimits()
	}
	for i := range in {
		l, err := in[i].parse()
		limits, errs = append(limits, l), append(errs, fault.Prefixed(fmt.Sprintf("limits[%d]", i), err))
	}
	return limits, fault.Join(errs...)
}

func (in *LimitInput) parse() (l Limit, err error) {
	l = Limit{Name: in.Name, Per: Subject(in.Per), GatewayID: in.GatewayID, Routes: slices.Clone(in.Routes)}
	if l.Per == "" {
		l.Per = PerKey
	}
	var badKind, badBurst error
	switch {
	case in.Sustained == "" && in.Quota == "" && in.Concurrency == nil:
		badKind = fault.Invalid("sustained", "is required, unless there is quota or concurrency: give a rate such as 600/min, a quota such as 100000/month, or a number of requests in flight")
	case in.Sustained != "" && in.Quota != "":
		badKind = fault.Invalid("quota", "must not be given together with sustained: make two limits, one for each")
	}
	badSustained := fault.Prefixed("sustained", l.Sustained.UnmarshalText([]byte(in.Sustained)))
	badBurst = fault.Prefixed("burst", l.Burst.UnmarshalText([]byte(in.Burst)))
	switch {
	case in.Burst == "" || in.Sustained != "":
	case in.Quota != "":
		badBurst = fault.Invalid("burst", "must be absent for a quota, which has no capacity: leave it out, or use sustained")
	case in.Concurrency != nil:
		badBurst = fault.Invalid("burst", "must be absent for concurrency, which has no capacity: leave it out, or use sustained")
	}
	return l, fault.Join(badKind, badSustained, badBurst, in.parseConcurrency(&l), in.parseQuota(&l))
}

// parseConcurrency sets the number of requests in flight of l.
func (in *LimitInput) parseConcurrency(l *Limit) error {
	if in.Concurrency == nil {
		return nil
	}
	if other := in.otherKind(); other != "" {
		return fault.Invalid("concurrency", "must not be given together with %s: make two limits, one for each", other)
	}
	l.Concurrency = *in.Concurrency
	return fault.Prefixed("concurrency", ratelimit.CheckConcurrency(l.Concurrency))
}

// otherKind returns the field of a rate or a quota, if there is one.
func (in *LimitInput) otherKind() string {
	switch {
	case in.Sustained != "":
		return "sustained"
	case in.Quota != "":
		return "quota"
	}
	return ""
}

// onlyConcurrency reports whether the limit is one of requests in flight, and nothing else.
func (in *LimitInput) onlyConcurrency() bool { return in.Concurrency != nil && in.otherKind() == "" }

// IsConcurrency reports whether the limit is one of requests in flight.
func (l *Limit) IsConcurrency() bool { return l.Concurrency != 0 }

func tooManyLimits() error { return fault.Invalid("limits", "must have at most %d limits", MaxLimits) }

// checkLimits checks what the types of limits do not.
func checkLimits(limits []Limit) error {
	if len(limits) > MaxLimits {
		return tooManyLimits()
	}
	var errs []error
	named := map[string]bool{}
	for i := range limits {
		l := &limits[i]
		err := l.check()
		if named[l.Name] {
			err = fault.Join(err, fault.Invalid("name", "must be unique in the plan: another limit is called %.32q", l.Name))
		}
		named[l.Name] = true
		errs = append(errs, fault.Prefixed(fmt.Sprintf("limits[%d]", i), err))
	}
	return fault.Join(errs...)
}

func (l *Limit) check() error {
	var badPer, badRoutes error
	if l.Per != PerKey && l.Per != PerOwner {
		badPer = fault.Invalid("per", "must be key or owner")
	}
	switch {
	case len(l.Routes) == 0:
	case l.GatewayID == "":
		badRoutes = fault.Invalid("routes", "need gateway_id: give the gateway that has these routes")
	case len(l.Routes) > MaxRoutes:
		badRoutes = fault.Invalid("routes", "must have at most %d paths", MaxRoutes)
	default:
		badRoutes = checkRoutes(l.Routes)
	}
	return fault.Join(checkName("name", l.Name, maxLimitName), badPer, badRoutes)
}

func checkRoutes(paths []string) error {
	var errs []error
	for i, path := range paths {
		field := fmt.Sprintf("routes[%d]", i)
		if len(path) > maxPath {
			errs = append(errs, fault.Invalid(field, "must have at most %d bytes", maxPath))
			continue
		}
		_, err := gateway.ParseTemplate(path)
		if err == nil && slices.Contains(paths[:i], path) {
			err = fault.Invalid("", "is in the list twice")
		}
		errs = append(errs, fault.Prefixed(field, err))
	}
	return fault.Join(errs...)
}

// Covers reports whether the limit applies to the route with the path, a template, of the gateway.
func (l *Limit) Covers(gatewayID, path string) bool {
	return (l.GatewayID == "" || l.GatewayID == gatewayID) && NewPaths(l.Routes).Cover(path)
}
