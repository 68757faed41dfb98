package proxy

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/snapshot"
)

// Hop describes one request to the upstream, for the fields that the gateway adds to the
// client's own.
type Hop struct {
	Verdict *admit.Verdict
	// Headers are set on the request: those of the target.
	Headers []snapshot.Header
	// Attempt is how often the request was sent to targets with this time; 0 stands for 1.
	Attempt int
	// GRPCTimeout takes the place of the client's grpc-timeout, unless it is "".
	GRPCTimeout string
	RequestID   string
	// Client is the peer: the client, or the last proxy before this one.
	Client netip.Addr
	// TLS is set if the request arrived over TLS.
	TLS bool
	// Major and Minor are the HTTP version of the request, and Via the pseudonym of this
	// instance.
	Major, Minor byte
	Via          string
	// Authority is the host that the client addressed.
	Authority string
	// ForwardedFor is the X-Forwarded-For of a trusted proxy, as one list, or "".
	ForwardedFor string
	// AcceptEncoding takes the place of the client's, if costs are read from the response; "" adds none.
	AcceptEncoding string
	// HasForwardedHost and HasForwardedProto are set if a trusted proxy sent these fields,
	// which are then forwarded.
	HasForwardedHost, HasForwardedProto bool

	room [64]byte // for composed values; a field, because the arguments of yield escape
}

// Each calls yield with each field that the gateway adds to a forwarded request (contract,
// 4.2, end): the request's identifier, X-Forwarded-*, Via, X-Keygate-* and the headers of the
// target. Via is added to the client's Via; each of the other fields replaces the
// client's field. value is valid until yield returns.
func (h *Hop) Each(yield func(name, value string)) {
	yield("X-Request-Id", h.RequestID)
	b := h.room[:0]
	if h.ForwardedFor != "" {
		b = append(append(b, h.ForwardedFor...), ", "...)
	}
	yield("X-Forwarded-For", Text(h.Client.AppendTo(b)))
	if !h.HasForwardedHost {
		yield("X-Forwarded-Host", h.Authority)
	}
	if !h.HasForwardedProto {
		if h.TLS {
			yield("X-Forwarded-Proto", "https")
		} else {
			yield("X-Forwarded-Proto", "http")
		}
	}
	b = append(h.room[:0], '0'+h.Major, '.', '0'+h.Minor, ' ')
	yield("Via", Text(append(b, h.Via...)))
	g := h.Verdict.Gateway
	yield("X-Keygate-Gateway-Id", g.ID)
	caller := h.Verdict.Caller
	if caller.Kind() == snapshot.KeyCaller {
		yield("X-Keygate-Key-Id", Text(caller.AppendID(h.room[:0])))
	}
	if p := h.Verdict.Principal; p != nil {
		yield("X-Keygate-Subject", url.PathEscape(p.Subject))
		yield("X-Keygate-Issuer", h.Verdict.Issuer.URL())
		for i := range p.Headers {
			// A header of the target takes precedence.
			if !slices.ContainsFunc(h.Headers, func(of snapshot.Header) bool {
				return len(of.Name) == len(p.Headers[i].Name) && sameName(of.Name, p.Headers[i].Name)
			}) {
				yield(p.Headers[i].Name, p.Headers[i].Value)
			}
		}
	}
	if owner := caller.Owner(); owner != "" {
		yield("X-Keygate-Key-Owner", owner)
	}
	if h.AcceptEncoding != "" {
		yield("Accept-Encoding", h.AcceptEncoding)
	}
	if h.Attempt > 1 {
		yield("X-Keygate-Attempt", Text(strconv.AppendInt(h.room[:0], int64(h.Attempt), 10)))
	}
	if h.GRPCTimeout != "" {
		yield("Grpc-Timeout", h.GRPCTimeout)
	}
	for i := range h.Headers {
		f := &h.Headers[i]
		yield(f.Name, f.Value)
	}
}

// NamesInstance reports whether a value of Via names the instance, which means that the
// request has already passed through it.
func NamesInstance(via, instance string) bool {
	for rest, more := via, true; more; {
		var hop string
		hop, rest, more = strings.Cut(rest, ",")
		_, by, _ := strings.Cut(strings.Trim(hop, " \t"), " ")
		by, _, _ = strings.Cut(strings.TrimLeft(by, " \t"), " ")
		if by == instance {
			return true
		}
	}
	return false
}

// IsKey reports whether an Authorization value holds a Keygate key, or was meant to, so that it
// must not be forwarded to the upstream. This is so for every Bearer value if the request was
// admitted with a key and Authorization may hold it, for a Bearer value that looks like a key, and
// for a key with another scheme or none. A token, with which the request was admitted, counts as a key unless its issuer
// says that upstreams get it.
func IsKey(authorization string, v *admit.Verdict) bool {
	scheme, credential := "", authorization
	if i := strings.IndexAny(authorization, " \t"); i >= 0 {
		scheme, credential = authorization[:i], strings.Trim(authorization[i:], " \t")
	}
	if _, isKey := apikey.LevelOf(credential); isKey {
		return true
	}
	if !strings.EqualFold(scheme, "Bearer") && !strings.EqualFold(authorization, "Bearer") {
		return false
	}
	if v.Principal != nil {
		return !v.Issuer.ForwardsToken()
	}
	return v.Caller != nil && !v.Gateway.ForwardsAuthorization || apikey.HasTag(credential)
}

// MayUpgrade reports whether a request may ask the upstream to change to the protocols in
// list, the value of Upgrade. It may not ask for HTTP/2 or TLS, which would carry requests
// past the checks (contract, 4.4).
func MayUpgrade(protocols string) bool {
	offers := 0
	for rest, more := protocols, true; more; {
		var offer string
		offer, rest, more = strings.Cut(rest, ",")
		if offer = strings.Trim(offer, " \t"); offer == "" {
			continue
		}
		offers++
		name, _, _ := strings.Cut(offer, "/")
		for _, never := range [...]string{"h2c", "h2", "http", "tls"} {
			if strings.EqualFold(name, never) {
				return false
			}
		}
	}
	return offers > 0
}

// Offered reports whether the protocol to which an upstream changed is in the list that the
// client sent.
func Offered(protocols, chosen string) bool {
	for rest, more := protocols, chosen != ""; more; {
		var offer string
		offer, rest, more = strings.Cut(rest, ",")
		if strings.EqualFold(strings.Trim(offer, " \t"), chosen) {
			return true
		}
	}
	return false
}
