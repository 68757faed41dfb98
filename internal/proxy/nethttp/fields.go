package nethttp

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/keygate/keygate/internal/cookie"
	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// ownFields sets the fields that every response carries: the request's identifier and
// those of the verdict.
func (x *exchange) ownFields() {
	h := x.w.Header()
	h["X-Request-Id"] = []string{x.RequestID()}
	if x.Verdict.Gateway == nil && x.Verdict.Code == "" {
		return // there is no verdict
	}
	var scratch [512]byte
	x.Verdict.EachField(scratch[:], func(name string, value []byte) {
		if name == "Vary" || name == "Access-Control-Expose-Headers" { // lists
			h.Add(name, string(value))
			return
		}
		h.Del(name)
		h[name] = []string{string(value)} // in the documented spelling
	})
}

// requestFields returns the fields that the upstream receives, except those of an upgrade
// (contract, 4.2, end).
func (x *exchange) requestFields() http.Header {
	r := x.r
	out := make(http.Header, len(r.Header)+10)
	var kept proxy.Fields
	named := connectionNames(r.Header)
	withheld := x.Verdict.Gateway.Withheld
	trusted := x.Client.Trusted
	drop := proxy.RequestDrop(trusted, x.server.cfg.Tracer != nil)
	for name, values := range r.Header {
		id := proxy.NameOf(name)
		if drop.Has(id) || named[name] && !proxy.Unnameable.Has(id) || proxy.IsWithheld(withheld, name) {
			continue
		}
		kept |= 1 << id
		out[name] = values
	}
	isKey := func(value string) bool { return proxy.IsKey(value, &x.Verdict) }
	if values := out["Authorization"]; slices.ContainsFunc(values, isKey) {
		if out["Authorization"] = slices.DeleteFunc(slices.Clone(values), isKey); len(out["Authorization"]) == 0 {
			delete(out, "Authorization")
		}
	}
	if values := out["Cookie"]; slices.ContainsFunc(values, cookie.HasSession) {
		if out["Cookie"] = othersOf(values); len(out["Cookie"]) == 0 {
			delete(out, "Cookie")
		}
	}
	if wantsTrailers(r.Header) {
		out["Te"] = []string{"trailers"}
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = []string{""} // otherwise net/http would send its own
	}
	hop := proxy.Hop{
		Verdict: &x.Verdict, RequestID: x.RequestID(), Client: x.Client.Peer, TLS: r.TLS != nil,
		Major: byte(r.ProtoMajor), Minor: byte(r.ProtoMinor), Via: x.server.cfg.Via, Authority: r.Host,
		HasForwardedHost: kept.Has(http1.XForwardedHost), HasForwardedProto: kept.Has(http1.XForwardedProto),
	}
	if trusted {
		hop.ForwardedFor = strings.Join(forwardedFor(r.Header), ", ")
	}
	hop.Each(func(name, value string) {
		name = textproto.CanonicalMIMEHeaderKey(name)
		before := out[name]
		if name != "Via" {
			before = nil
		}
		out[name] = append(before[:len(before):len(before)], strings.Clone(value))
	})
	if !proxy.IsWithheld(withheld, "traceparent") {
		x.setTraceparent(out)
	}
	return out
}

// othersOf returns the values of Cookie without the session of a browser.
func othersOf(values []string) (others []string) {
	for _, v := range values {
		if rest := cookie.AppendOthers(nil, v); len(rest) > 0 {
			others = append(others, string(rest))
		}
	}
	return others
}

// forwardedFor returns the values of X-Forwarded-For, in any spelling of its name.
func forwardedFor(h http.Header) []string {
	const canonical = "X-Forwarded-For"
	list := h[canonical]
	for name, values := range h {
		if name != canonical && proxy.NameOf(name) == http1.XForwardedFor {
			list = append(list[:len(list):len(list)], values...)
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(v string) bool { return v == "" })
}

// loops reports whether the request has already passed through this instance.
func (x *exchange) loops() bool {
	for _, value := range x.r.Header["Via"] {
		if proxy.NamesInstance(value, x.server.cfg.Via) {
			return true
		}
	}
	return false
}

// responseFields copies the fields of an upstream's response that are forwarded.
func (x *exchange) responseFields(to http.Header, status int, from http.Header) {
	named := connectionNames(from)
	drop := proxy.ResponseDrop(status, x.Verdict.AllowOrigin != "")
	for name, values := range from {
		if id := proxy.NameOf(name); drop.Has(id) || named[name] && !proxy.Unnameable.Has(id) {
			continue
		}
		to[name] = values
	}
	if _, ok := to["Content-Type"]; !ok {
		to["Content-Type"] = nil // otherwise net/http would guess one
	}
}

// connectionNames returns the names that the Connection field lists.
func connectionNames(h http.Header) map[string]bool {
	var names map[string]bool
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			if name = textproto.TrimString(name); name != "" {
				if names == nil {
					names = make(map[string]bool, 4)
				}
				names[textproto.CanonicalMIMEHeaderKey(name)] = true
			}
		}
	}
	return names
}

// wantsTrailers reports whether the client has announced that it accepts trailers.
func wantsTrailers(h http.Header) bool {
	return httpguts.HeaderValuesContainsToken(h["Te"], "trailers")
}

// mayTrail reports whether a field may be forwarded in trailers. withheld is nil in a
// response.
func mayTrail(name string, response bool, withheld []string) bool {
	return proxy.MayTrail(name, proxy.NameOf(name), response) && !proxy.IsWithheld(withheld, name)
}

// announceTrailers announces to the client the trailers that the upstream has announced.
func announceTrailers(h, trailers http.Header) {
	for name := range trailers {
		if _, inHead := h[name]; !inHead && mayTrail(name, true, nil) {
			h.Add("Trailer", name)
		}
	}
}

// sendTrailers stores the upstream's trailers under http.TrailerPrefix, where net/http
// expects unannounced ones. It merges the two kinds.
func sendTrailers(h, trailers http.Header) {
	for name, values := range trailers {
		if mayTrail(name, true, nil) {
			h[http.TrailerPrefix+name] = values
		}
	}
}
