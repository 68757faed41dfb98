package gateway

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// DefaultUpstream is the name of the upstream of routes that name none. Every gateway has it.
const DefaultUpstream = "default"

// Bounds of upstreams (targets.md, section 1).
const (
	MaxUpstreams      = 64     // of a gateway
	MaxTargets        = 256    // of an upstream
	MaxAccountTargets = 10_000 // of all gateways of an account
	MaxTargetWeight   = 1000
	MaxRetryAttempts  = 5
	MaxUpstreamBytes  = 1 << 20 // of all upstreams of a gateway, as stored
)

// Target is a target of an upstream (targets.md, section 1).
type Target struct {
	URL     string  `json:"url"`               // as given
	Weight  int     `json:"weight,omitempty"`  // 1 to MaxTargetWeight; 0 for 1
	Backup  bool    `json:"backup,omitempty"`  // takes part only while no other does
	Drain   bool    `json:"drain,omitempty"`   // gets no more attempts
	Resolve Resolve `json:"resolve,omitempty"` // "" for ResolveNone
}

// Resolve says how the name in the URL of a target is looked up (targets.md, section 5).
type Resolve string

// The ways to look up a name.
const (
	ResolveNone Resolve = "none" // the default: at each connect, and the target is one
	ResolveA    Resolve = "a"    // every refresh; each A and AAAA record is an address of the target
	ResolveSRV  Resolve = "srv"  // every refresh; each SRV record is one, with its port, weight and priority
)

// DefaultRefresh is how often names are looked up in an upstream that sets no refresh.
const DefaultRefresh = "10s"

// Policy is how an upstream chooses between its targets (targets.md, section 2).
type Policy string

// The policies.
const (
	LeastRequests Policy = "least_requests" // the default
	RoundRobin    Policy = "round_robin"
	Hash          Policy = "hash"
)

// The values of hash_on, of which HashHeader is followed by the name of a header.
const (
	HashPrincipal = "principal"
	HashAddress   = "address"
	HashHeader    = "header:"
)

// Balance says how an upstream chooses between its targets. The zero value means LeastRequests.
type Balance struct {
	Policy Policy `json:"policy,omitempty"`  // "" for LeastRequests
	HashOn string `json:"hash_on,omitempty"` // of Hash
}

// The values of `on`: how an attempt fails (targets.md, section 1).
const (
	OnConnect         = "connect"
	OnReset           = "reset"
	OnTimeout         = "timeout"
	On502             = "502"
	On503             = "503"
	On504             = "504"
	OnGRPCUnavailable = "grpc_unavailable"
)

// Ejection says when failures in a row eject a target (targets.md, section 3).
type Ejection struct {
	Off        bool     `json:"off,omitempty"` // the rest is empty then
	Failures   int      `json:"failures,omitempty"`
	On         []string `json:"on,omitempty"`
	Base       string   `json:"base,omitempty"` // a Go duration
	Max        string   `json:"max,omitempty"`  // a Go duration
	MaxPercent int      `json:"max_percent,omitempty"`
}

// Retries says when a request is sent to another target (targets.md, section 4).
type Retries struct {
	Attempts       int      `json:"attempts"` // in addition to the first; 0 to MaxRetryAttempts
	BudgetPercent  int      `json:"budget_percent"`
	On             []string `json:"on"`
	IdempotencyKey bool     `json:"idempotency_key,omitempty"` // POST and PATCH with Idempotency-Key, too
}

// DefaultEjection returns the ejection of an upstream that sets none.
func DefaultEjection() Ejection {
	return Ejection{Failures: 5, On: []string{OnConnect, OnReset}, Base: "10s", Max: "300s", MaxPercent: 50}
}

// DefaultRetries returns the retries of an upstream that sets none.
func DefaultRetries() Retries {
	return Retries{Attempts: 1, BudgetPercent: 20, On: []string{OnConnect, OnReset}}
}

// SeveralConnectTimeout is the connect timeout of an upstream with several targets that sets none.
const SeveralConnectTimeout = time.Second

// FullName returns the name, which is not stored for DefaultUpstream.
func (u *Upstream) FullName() string {
	if u.Name == "" {
		return DefaultUpstream
	}
	return u.Name
}

// AllTargets returns the targets, of which there is at least one. The result must not be changed.
func (u *Upstream) AllTargets() []Target {
	if u.Targets == nil {
		return []Target{{URL: u.URL}}
	}
	return u.Targets
}

// SetTargets makes list, which is not empty, the targets.
func (u *Upstream) SetTargets(list []Target) {
	u.URL, u.Targets = list[0].URL, nil
	if len(list) == 1 && list[0].normal() == (Target{URL: u.URL}) {
		return
	}
	u.Targets = make([]Target, len(list))
	for i, t := range list {
		u.Targets[i] = t.normal()
	}
}

// Several reports whether there are several targets in the configuration. One whose name is looked up may have several
// addresses: see LooksUp.
func (u *Upstream) Several() bool { return len(u.Targets) > 1 }

// LooksUp reports whether the name of a target is looked up every refresh, so that the target may have several addresses.
func (u *Upstream) LooksUp() bool {
	return slices.ContainsFunc(u.Targets, func(t Target) bool { return t.ResolveOf() != ResolveNone })
}

// HasSRV reports whether a target has the addresses of SRV records.
func (u *Upstream) HasSRV() bool {
	return slices.ContainsFunc(u.Targets, func(t Target) bool { return t.Resolve == ResolveSRV })
}

// ProvesHost reports whether the certificate of each target proves that it is the service of the name in Host: its targets
// are https, and Host is a name. The only target of the default upstream proves the name in its URL instead (contract,
// 3.3), unless that is the name of SRV records.
func (u *Upstream) ProvesHost() bool {
	if u.Name == "" && !u.Several() && !u.HasSRV() || u.Host == "" || u.Host == PreserveHost {
		return false
	}
	return !slices.ContainsFunc(u.AllTargets(), func(t Target) bool { return !strings.HasPrefix(strings.ToLower(t.URL), "https:") })
}

// WeightOf returns the weight of a target.
func (t *Target) WeightOf() int { return max(1, t.Weight) }

// ResolveOf returns how the name of a target is looked up.
func (t *Target) ResolveOf() Resolve {
	if t.Resolve == "" {
		return ResolveNone
	}
	return t.Resolve
}

// RefreshOf returns how often names are looked up, as a Go duration.
func (u *Upstream) RefreshOf() string { return cmp.Or(u.Refresh, DefaultRefresh) }

// EjectionOf returns the ejection that is in force.
func (u *Upstream) EjectionOf() Ejection {
	if u.Ejection == nil {
		return DefaultEjection()
	}
	return *u.Ejection
}

// RetriesOf returns the retries that are in force.
func (u *Upstream) RetriesOf() Retries {
	if u.Retries == nil {
		return DefaultRetries()
	}
	return *u.Retries
}

// PolicyOf returns the policy that is in force.
func (b Balance) PolicyOf() Policy {
	if b.Policy == "" {
		return LeastRequests
	}
	return b.Policy
}

// UpstreamNamed returns the upstream of a name, or nil. "" is DefaultUpstream. The pointer is into g.
func (g *Gateway) UpstreamNamed(name string) *Upstream {
	if name == "" || name == DefaultUpstream {
		return &g.Upstream
	}
	i := slices.IndexFunc(g.Others, func(u Upstream) bool { return u.Name == name })
	if i < 0 {
		return nil
	}
	return &g.Others[i]
}

// NeedsUpstreams reports whether g has anything that a gateway with a single URL, and keys alone, does not have: named
// upstreams, a default one with several targets or with settings of its own, or issuers.
func (g *Gateway) NeedsUpstreams() bool {
	return len(g.Others) > 0 || g.Upstream.isMore() || len(g.Requests.Issuers) > 0 || g.Requests.DefaultAuth != ""
}

// isMore reports whether u has anything that the upstream_ settings cannot say.
func (u *Upstream) isMore() bool {
	return u.Targets != nil || u.Balance != (Balance{}) || u.Ejection != nil || u.Retries != nil || u.Health != nil || u.Refresh != ""
}

// CountTargets returns the number of targets of all upstreams.
func (g *Gateway) CountTargets() int {
	n := 0
	for u := range g.AllUpstreams {
		n += len(u.AllTargets())
	}
	return n
}

// StoredUpstreams is the upstreams of a gateway as they are stored, in JSON: the default one, as versions before there were
// others have stored it, with the others in it.
type StoredUpstreams struct {
	Upstream
	Others []Upstream `json:"others,omitempty"`
}

// StoredUpstreams returns the upstreams of g as they are stored.
func (g *Gateway) StoredUpstreams() StoredUpstreams { return StoredUpstreams{g.Upstream, g.Others} }

// CheckUpstreamBytes checks that all upstreams of g together take at most MaxUpstreamBytes, or no more than those of before,
// which may be nil. Otherwise the error is a validation error without a field.
func (g *Gateway) CheckUpstreamBytes(before *Gateway) error {
	size := g.upstreamBytes()
	if size <= MaxUpstreamBytes || before != nil && size <= before.upstreamBytes() {
		return nil
	}
	return fault.Invalid("", "the upstreams of the gateway would take %d KiB with their targets, certificates and headers, and may take at most %d KiB: remove targets or upstreams, or use shorter URLs and certificates", (size+1023)>>10, MaxUpstreamBytes>>10)
}

func (g *Gateway) upstreamBytes() int {
	b, err := json.Marshal(g.StoredUpstreams())
	if err != nil {
		return math.MaxInt // a gateway that cannot be stored
	}
	return len(b)
}

// Alone returns a gateway that has u alone, an upstream of g or a new one, and whose settings UpstreamSettings reads and
// changes. It shares maps and slices with u.
func (g *Gateway) Alone(u *Upstream) *Gateway {
	alone := &Gateway{ID: g.ID, AccountID: g.AccountID, Upstream: *u}
	if u.Name == "" {
		alone.Upstream.Timeout = g.Timeout
	}
	return alone
}

// PutUpstream puts u, the upstream of a gateway that Alone returned, in the position of the one with its name, or adds it.
func (g *Gateway) PutUpstream(u Upstream) {
	if u.Name == "" {
		g.Timeout, u.Timeout = cmp.Or(u.Timeout, DefaultTimeout), ""
		g.Upstream = u
		return
	}
	at, found := slices.BinarySearchFunc(g.Others, u.Name, func(o Upstream, name string) int { return cmp.Compare(o.Name, name) })
	g.Others = slices.Clone(g.Others)
	if found {
		g.Others[at] = u
		return
	}
	g.Others = slices.Insert(g.Others, at, u)
}

// RemoveUpstream removes a named upstream.
func (g *Gateway) RemoveUpstream(name string) {
	g.Others = slices.DeleteFunc(slices.Clone(g.Others), func(u Upstream) bool { return u.Name == name })
	if len(g.Others) == 0 {
		g.Others = nil
	}
}

// StoredUpstreamName returns the Name of the upstream that has the name in the API, and the Upstream of routes to it.
func StoredUpstreamName(name string) string {
	if name == DefaultUpstream {
		return ""
	}
	return name
}

// AllUpstreams calls f for each upstream, the default one first. The pointers are into g.
func (g *Gateway) AllUpstreams(f func(*Upstream) bool) {
	if !f(&g.Upstream) {
		return
	}
	for i := range g.Others {
		if !f(&g.Others[i]) {
			return
		}
	}
}
