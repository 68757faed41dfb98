package send

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/keygate/keygate/internal/http1"
	"github.com/keygate/keygate/internal/proxy"
)

// An upstream that gets its own Host uses it in the URLs that it gives to clients. They cannot follow
// those, and learn an address that is not theirs to know, so such a URL is passed on with the scheme
// and the host by which the client reached the gateway (contract, 3.3, upstream_host).

// readdressed are the fields of a response with a URL that is not the client's own.
const readdressed proxy.Fields = 1<<http1.Location | 1<<http1.ContentLocation | 1<<http1.Refresh

// origin is an origin (RFC 6454, section 4): name is in lower case, and port never empty. Its zero value
// equals no other.
type origin struct{ scheme, name, port string }

// originOf returns the origin of a scheme and an authority.
func originOf(scheme, authority string) origin {
	o := origin{scheme: strings.ToLower(scheme), name: strings.ToLower(authority)}
	if i := strings.LastIndexByte(o.name, ':'); i > strings.LastIndexByte(o.name, ']') {
		o.name, o.port = o.name[:i], o.name[i+1:]
	}
	if o.port == "" {
		if o.port = "80"; o.scheme == "https" {
			o.port = "443"
		}
	}
	return o
}

// Links passes on the URLs in the response to a request. Its zero value changes none.
type Links struct {
	to      *Target
	request *Request
}

// Links returns the Links for the response. They are valid until Reset.
func (a *Attempt) Links() Links { return Links{a.target, &a.Request} }

// Readdress returns the value of a field of the response with the scheme and host of the client's request
// in the place of the upstream's own origin. changed is false if the field or its value has none.
func (l Links) Readdress(f *http1.Field, head []byte) (value []byte, changed bool) {
	if !readdressed.Has(f.ID) || l.to == nil || l.to.self == (origin{}) {
		return nil, false
	}
	self := l.to.self
	before, url := []byte(nil), f.Value.Of(head)
	if f.ID == http1.Refresh {
		before, url = cutRefresh(url)
	}
	scheme, authority, rest := splitURL(proxy.Text(url))
	if authority == "" || originOf(cmp.Or(scheme, self.scheme), authority) != self {
		return nil, false
	}
	value = append(value, before...)
	toScheme, toHost := l.request.clientOrigin()
	if scheme != "" {
		value = append(append(value, toScheme...), ':')
	}
	return append(append(append(value, "//"...), toHost...), rest...), true
}

// splitURL splits a URL into its scheme, which may be absent, its authority and what follows. The authority
// is empty if it has none.
func splitURL(url string) (scheme, authority, rest string) {
	i := strings.Index(url, "//")
	if i < 0 || i > 0 && (url[i-1] != ':' || strings.ContainsAny(url[:i-1], "/?#")) {
		return "", "", url
	}
	if i > 0 {
		scheme = url[:i-1]
	}
	authority = url[i+2:]
	if end := strings.IndexAny(authority, `/?#\"' `); end >= 0 {
		authority, rest = authority[:end], authority[end:]
	}
	return scheme, authority, rest
}

// cutRefresh splits a value of Refresh, such as "5; url=https://example.com/", before its URL, which may be
// in quotes.
func cutRefresh(value []byte) (before, url []byte) {
	i := bytes.IndexAny(value, ";,")
	if i < 0 {
		return value, nil
	}
	i++
	const name = "url="
	i += len(value[i:]) - len(bytes.TrimLeft(value[i:], " \t"))
	if len(value)-i >= len(name) && strings.EqualFold(proxy.Text(value[i:i+len(name)]), name) {
		i += len(name)
	}
	if i < len(value) && (value[i] == '"' || value[i] == '\'') {
		i++
	}
	return value[:i], value[i:]
}

// clientOrigin returns the scheme and the authority by which the client, or the trusted proxy before the
// gateway, was addressed.
func (r *Request) clientOrigin() (scheme, authority string) {
	if scheme, authority = "http", proxy.Text(r.authority()); r.Hop.TLS {
		scheme = "https"
	}
	if !r.Trusted {
		return scheme, authority
	}
	if said := r.first(http1.XForwardedProto); strings.EqualFold(said, "http") || strings.EqualFold(said, "https") {
		scheme = strings.ToLower(said)
	}
	if said := r.first(http1.XForwardedHost); http1.ValidAuthority(said) {
		authority = said
	}
	return scheme, authority
}

// first returns the first element of a list in the client's fields.
func (r *Request) first(id http1.Name) string {
	element, _, _ := strings.Cut(proxy.Text(proxy.ValueOf(r.Text, r.Head.Fields(), id)), ",")
	return strings.Trim(element, " \t")
}
