package gateway

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// maxUpstreamName is the most characters of the name of an upstream.
const maxUpstreamName = 64

// CheckUpstreamName checks the name of an upstream: 1 to 64 of a-z, 0-9, - and _. The error is a validation error of
// the field "name".
func CheckUpstreamName(s string) error {
	if s == "" || len(s) > maxUpstreamName || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return fault.Invalid("name", "must have 1 to %d characters of a-z, 0-9, - and _", maxUpstreamName)
	}
	return nil
}

// OfUpstream returns a validation error of settings upstream_… as one of the fields of an upstream, whose names do not
// have that prefix. It returns any other error unchanged.
func OfUpstream(err error) error {
	problems := slices.Clone(fault.ProblemsOf(err))
	if problems == nil {
		return err
	}
	for i := range problems {
		problems[i].Field = strings.TrimPrefix(problems[i].Field, upstreamPrefix)
		problems[i].Message = strings.ReplaceAll(problems[i].Message, upstreamPrefix, "")
	}
	return fault.InvalidAll(problems, fault.LeftOut(err))
}

// Check checks a target by itself. Errors are validation errors of its fields.
func (t *Target) Check() error {
	_, badURL := ParseUpstreamURL(t.URL)
	var badWeight error
	if t.Weight != 0 {
		badWeight = CheckTargetWeight(t.Weight)
	}
	return fault.Join(OfUpstream(badURL), badWeight, t.checkResolve())
}

// Resolves returns the values of resolve, the default first.
func Resolves() []string { return []string{string(ResolveNone), string(ResolveA), string(ResolveSRV)} }

// CheckResolve checks how a name is looked up. The error is a validation error of the field "resolve".
func CheckResolve(r Resolve) error {
	if !slices.Contains(Resolves(), string(r)) {
		return fault.Invalid("resolve", "must be one of %s", strings.Join(Resolves(), ", "))
	}
	return nil
}

// checkResolve checks Resolve, and whether the URL fits to it. Errors are validation errors of "resolve" or "url".
func (t *Target) checkResolve() error {
	if err := CheckResolve(t.ResolveOf()); err != nil || t.Resolve != ResolveSRV {
		return err
	}
	u, err := url.Parse(t.URL)
	if err != nil {
		return nil // ParseUpstreamURL says why
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return fault.Invalid("url", "must have the name of SRV records with resolve srv, not an address: give their name, or leave resolve out")
	}
	if u.Port() != "" {
		return fault.Invalid("url", "must not have a port with resolve srv, since each SRV record has one: leave the port out")
	}
	return nil
}

// checkRefresh checks how often names are looked up. The error is a validation error of the field "refresh".
func checkRefresh(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d > time.Hour {
		return fault.Invalid("refresh", "must be a duration between 1s and 1h, such as 5s or 1m")
	}
	return nil
}

// CheckResolved checks what an upstream must have so that the addresses of SRV records can prove with a certificate that they
// are the service. The error is a validation error of "upstream_host".
func (u *Upstream) CheckResolved() error {
	if u.HasSRV() && !u.ProvesHost() && strings.HasPrefix(strings.ToLower(u.URL), "https:") {
		return fault.Invalid("upstream_host", "must be the name in the certificate of the targets: https with resolve srv needs it, since SRV records may name any host")
	}
	return nil
}

// CheckTargetWeight checks a weight that is given. The error is a validation error of the field "weight".
func CheckTargetWeight(n int) error {
	if n < 1 || n > MaxTargetWeight {
		return fault.Invalid("weight", "must be between 1 and %d", MaxTargetWeight)
	}
	return nil
}

// CheckTargets checks the targets of an upstream: 1 to MaxTargets, of one scheme, no two with the same URL. Errors are
// validation errors of "targets" or of a field of it, as "targets[1].url".
func CheckTargets(list []Target) error {
	switch {
	case len(list) == 0:
		return fault.Invalid("targets", "must have at least one target, such as {url: https://orders.internal}")
	case len(list) > MaxTargets:
		return fault.Invalid("targets", "must not have more than %d targets", MaxTargets)
	}
	var problems []error
	seen, scheme := map[string]int{}, ""
	for i := range list {
		at := fmt.Sprintf("targets[%d]", i)
		problems = append(problems, fault.Prefixed(at, list[i].Check()))
		u, err := ParseUpstreamURL(list[i].URL)
		if err != nil {
			continue
		}
		if first, taken := seen[u.same()]; taken {
			problems = append(problems, fault.Invalid(at+".url", "is the same target as targets[%d]: give it once, with a weight", first))
		}
		seen[u.same()] = i
		if scheme == "" {
			scheme = u.Scheme
		}
		if u.Scheme != scheme {
			problems = append(problems, fault.Invalid(at+".url", "must start with %s:// as the other targets do: the targets of an upstream have one scheme", scheme))
		}
	}
	return fault.Join(problems...)
}

// same returns what is equal for URLs of the same target.
func (u UpstreamURL) same() string { return u.Origin() + strings.TrimSuffix(u.Path, "/") }

// SameTarget reports whether two URLs are those of the same target: the same origin and path.
func SameTarget(a, b string) bool {
	if a == b {
		return true
	}
	one, badOne := ParseUpstreamURL(a)
	other, badOther := ParseUpstreamURL(b)
	return badOne == nil && badOther == nil && one.same() == other.same()
}

// FindTarget returns the index of the target with a URL, or -1.
func (u *Upstream) FindTarget(url string) int {
	return slices.IndexFunc(u.AllTargets(), func(t Target) bool { return SameTarget(t.URL, url) })
}

// Policies returns the values of balance, the default first.
func Policies() []string { return []string{string(LeastRequests), string(RoundRobin), string(Hash)} }

func checkPolicy(s string) error {
	if !slices.Contains(Policies(), s) {
		return fault.Invalid("balance", "must be one of %s", strings.Join(Policies(), ", "))
	}
	return nil
}

func checkHashOn(s string) error {
	name, isHeader := strings.CutPrefix(s, HashHeader)
	if s != HashPrincipal && s != HashAddress && (!isHeader || !isToken(name) || len(name) > maxHeaderName) {
		return fault.Invalid("hash_on", "must be principal, address, or header: and the name of a header, such as header:X-Session")
	}
	return nil
}

// failures returns the values of on, in the order in which they are described.
func failures() []string {
	return []string{OnConnect, OnReset, OnTimeout, On502, On503, On504, OnGRPCUnavailable}
}

// checkOn checks a list of failures. The error is a validation error of the field "on" or of an item.
func checkOn(list []string) error {
	var problems []error
	for i, s := range list {
		at := fmt.Sprintf("on[%d]", i)
		switch {
		case !slices.Contains(failures(), s):
			problems = append(problems, fault.Invalid(at, "must be one of %s", strings.Join(failures(), ", ")))
		case slices.Contains(list[:i], s):
			problems = append(problems, fault.Invalid(at, "is a duplicate"))
		}
	}
	return fault.Join(problems...)
}

// Bounds of an ejection.
const (
	maxEjectionFailures = 1000
	minEjectionTime     = 100 * time.Millisecond
	maxEjectionTime     = 24 * time.Hour
)

// Validate checks an ejection. Errors are validation errors of its fields.
func (e *Ejection) Validate() error {
	if e.Off {
		return nil
	}
	var badFailures, badOn, badOrder, badPercent error
	if e.Failures < 1 || e.Failures > maxEjectionFailures {
		badFailures = fault.Invalid("failures", "must be between 1 and %d: set ejection to false to turn it off", maxEjectionFailures)
	}
	if badOn = checkOn(e.On); len(e.On) == 0 {
		badOn = fault.Invalid("on", "must name at least one kind of failure: set ejection to false to turn it off")
	}
	base, badBase := ejectionTime("base", e.Base)
	longest, badMax := ejectionTime("max", e.Max)
	if badBase == nil && badMax == nil && base > longest {
		badOrder = fault.Invalid("base", "must not be longer than max, which is %s", e.Max)
	}
	if e.MaxPercent < 0 || e.MaxPercent > 100 {
		badPercent = fault.Invalid("max_percent", "must be between 0 and 100")
	}
	return fault.Join(badFailures, badOn, badBase, badMax, badOrder, badPercent)
}

func ejectionTime(field, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < minEjectionTime || d > maxEjectionTime {
		return 0, fault.Invalid(field, "must be a duration between 100ms and 24h, such as 10s or 5m")
	}
	return d, nil
}

func checkEjection(e Ejection) error { return fault.Prefixed("ejection", e.Validate()) }

// Validate checks retries. Errors are validation errors of their fields.
func (r *Retries) Validate() error {
	var badAttempts, badBudget error
	if r.Attempts < 0 || r.Attempts > MaxRetryAttempts {
		badAttempts = fault.Invalid("attempts", "must be between 0 and %d", MaxRetryAttempts)
	}
	if r.BudgetPercent < 0 || r.BudgetPercent > 100 {
		badBudget = fault.Invalid("budget_percent", "must be between 0 and 100")
	}
	return fault.Join(badAttempts, badBudget, checkOn(r.On))
}

func checkRetries(r Retries) error { return fault.Prefixed("retries", r.Validate()) }

// Check checks the settings of an upstream that depend on each other, apart from those of TLS. Errors are validation
// errors of its fields.
func (u *Upstream) Check() error {
	var badHash error
	switch b := u.Balance; {
	case b.PolicyOf() == Hash && b.HashOn == "":
		badHash = fault.Invalid("hash_on", "is required with balance hash: give principal, address, or header: and the name of a header")
	case b.PolicyOf() != Hash && b.HashOn != "":
		badHash = fault.Invalid("hash_on", "needs balance hash: set that too, or leave hash_on out")
	}
	if u.URL == "" {
		return fault.Join(CheckTargets(nil), badHash)
	}
	var badGRPC error
	if h := u.Health; h != nil && h.GRPC != nil && strings.HasPrefix(strings.ToLower(u.URL), "http:") {
		badGRPC = fault.Invalid("health.grpc", "needs https or h2c targets, since gRPC is spoken over HTTP/2: write h2c:// for it without TLS")
	}
	return fault.Join(CheckTargets(u.AllTargets()), badHash, badGRPC)
}
