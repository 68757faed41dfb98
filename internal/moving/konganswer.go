package moving

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/document"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// listsOf returns the lists of addresses of a plugin ip-restriction. why says why they cannot be carried.
//
// In Kong, what deny has is denied, whatever allow has; in Keygate, the longest prefix decides. So what allow has within deny
// is left out.
func listsOf(p *plugin) (l addrlist.Lists, why string) {
	allow, problem := networks(p, "allow", "whitelist")
	deny, denyProblem := networks(p, "deny", "blacklist")
	if why := cmp.Or(problem, denyProblem); why != "" {
		return l, why
	}
	deny = outermost(deny)
	some := len(allow) > 0
	allow = outermost(slices.DeleteFunc(allow, func(n netip.Prefix) bool {
		return slices.ContainsFunc(deny, func(o netip.Prefix) bool { return contains(o, n) })
	}))
	if some && len(allow) == 0 {
		return nobody(), ""
	}
	l = addrlist.Lists{Allow: textsOfNetworks(allow), Deny: textsOfNetworks(deny)}
	if err := l.Check(); err != nil {
		bad := fault.ProblemsOf(err)[0]
		return addrlist.Lists{}, bad.Field + " " + bad.Message
	}
	return l, ""
}

// nobody returns the lists that deny every address.
func nobody() addrlist.Lists { return addrlist.Lists{Deny: []string{"0.0.0.0/0", "::/0"}} }

func textsOfNetworks(list []netip.Prefix) (texts []string) {
	for _, n := range list {
		texts = append(texts, n.String())
	}
	return texts
}

// contains reports whether all addresses of b are ones of a.
func contains(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }

// outermost returns the networks that no other one of the list contains, each once.
func outermost(list []netip.Prefix) (outer []netip.Prefix) {
	for i, n := range list {
		if !slices.ContainsFunc(list[:i], func(o netip.Prefix) bool { return contains(o, n) }) &&
			!slices.ContainsFunc(list[i+1:], func(o netip.Prefix) bool { return contains(o, n) && o != n }) {
			outer = append(outer, n)
		}
	}
	return outer
}

// networks returns the networks of lists of a plugin. A single address is one of its own, and bits behind a prefix do not count,
// as in Kong.
func networks(p *plugin, names ...string) (list []netip.Prefix, problem string) {
	for _, name := range names {
		for _, text := range textsOf(p.get(name)) {
			n, err := netip.ParsePrefix(text)
			if err != nil {
				var a netip.Addr
				if a, err = netip.ParseAddr(text); err == nil {
					n, err = a.Prefix(a.BitLen())
				}
			}
			if err != nil || n.Addr().Is4In6() || n.Addr().Zone() != "" {
				return nil, fmt.Sprintf("%s of its %s is no network of IPv4 or IPv6 addresses", short(text), name)
			}
			list = append(list, n.Masked())
		}
	}
	if len(list) > maxNetworks {
		return nil, fmt.Sprintf("its lists have more than %d networks", maxNetworks)
	}
	return list, ""
}

// maxNetworks is how many networks of a list are compared with one another.
const maxNetworks = 2_000

// isAnswer reports whether Kong itself responds to the requests of a plugin.
func isAnswer(name string) bool { return name == "request-termination" || name == "redirect" }

// answerOf returns what a plugin request-termination or redirect responds with. why says why it cannot be carried.
func answerOf(p *plugin) (h *gateway.Handling, why string) {
	if p.name == "redirect" {
		h, why = redirectOf(p)
	} else {
		h, why = respondOf(p)
	}
	if why != "" {
		return nil, why
	}
	if err := h.Check("/"); err != nil {
		bad := fault.ProblemsOf(err)[0]
		return nil, fmt.Sprintf("as %s it would not be valid: %s", strings.ReplaceAll(bad.Field, ".", " "), bad.Message)
	}
	return h, ""
}

func respondOf(p *plugin) (h *gateway.Handling, why string) {
	r := &gateway.Respond{Status: 503}
	if n := p.get("status_code"); n != nil {
		status, ok := document.Integer(n.Text)
		if !ok {
			return nil, "its status_code is not in the file"
		}
		r.Status = status
	}
	for _, trigger := range []string{"trigger", "echo_trigger"} {
		if n := p.get(trigger); n != nil && n.Text != "" {
			return nil, "only requests with the header or parameter " + short(n.Text) + " are terminated (" + trigger + ")"
		}
	}
	if n := p.get("echo"); n != nil && n.Text == "true" {
		return nil, "its response has what the request had (echo)"
	}
	body, message := p.get("body"), p.get("message")
	switch {
	case r.Status == 204 || r.Status == 205 || r.Status == 304:
	case body != nil && body.Text != "":
		r.Body, r.ContentType = body.Text, "text/plain"
		if n := p.get("content_type"); n != nil && n.Text != "" {
			r.ContentType = n.Text
		}
	default:
		text := terminated(r.Status)
		if message != nil {
			text = message.Text
		}
		if text == "" {
			break
		}
		content, err := json.Marshal(map[string]string{"message": text})
		if err != nil {
			return nil, "its message is no text"
		}
		r.Body, r.ContentType = string(content), "application/json; charset=utf-8"
	}
	for _, n := range []*document.Node{body, message} {
		if n != nil && (strings.Contains(n.Text, "${{") || strings.Contains(n.Text, "{vault://")) {
			return nil, "its response is not in the file"
		}
	}
	return &gateway.Handling{Respond: r}, ""
}

// terminated returns the message of Kong for a status, if a plugin request-termination gives none.
func terminated(status int64) string {
	return map[int64]string{
		401: "Unauthorized", 404: "Not found", 405: "Method not allowed", 500: "An unexpected error occurred", 502: "Bad Gateway", 503: "Service unavailable",
	}[status]
}

func redirectOf(p *plugin) (h *gateway.Handling, why string) {
	r := &gateway.Redirect{Status: 301}
	if n := p.get("status_code"); n != nil {
		status, err := strconv.ParseInt(n.Text, 10, 32)
		if err != nil {
			return nil, "its status_code is not in the file"
		}
		r.Status = status
	}
	n := p.get("location")
	if n == nil || isReference(n.Text) {
		return nil, "its location is not in the file"
	}
	r.To = n.Text
	if keep := p.get("keep_incoming_path"); keep != nil && keep.Text == "true" {
		u, err := url.Parse(r.To)
		if err != nil || u.Host == "" || u.User != nil {
			return nil, "its location is no URL"
		}
		r.To, r.KeepPath, r.KeepQuery = u.Scheme+"://"+u.Host, true, true
	}
	return &gateway.Handling{Redirect: r}, ""
}

// onSomeRoutes says why a plugin ip-restriction of a consumer and a route is not carried.
const onSomeRoutes = "it holds on some routes alone, and the lists of a key on all"

// callerLists returns the plugin ip-restriction of a consumer or its groups, and its lists. why says why they cannot be those of
// its keys.
func (k *kong) callerLists(c *consumer) (p *plugin, l addrlist.Lists, why string) {
	for _, one := range k.ofCallers[c] {
		switch {
		case one.name != "ip-restriction":
		case one.route != nil || one.service != nil:
			return one, l, onSomeRoutes
		case p == nil || p.group != nil && one.consumer != nil:
			p = one // that of the consumer applies before those of its groups
		case p.group != nil && one.group != nil:
			return one, l, "several of the consumer's groups have one"
		}
	}
	if p != nil {
		l, why = listsOf(p)
	}
	return p, l, why
}

// reportLists adds the line of a plugin ip-restriction that is carried, as lists of what.
func (k *kong) reportLists(p *plugin, what string) {
	why := "allow_ips and deny_ips of " + what + " decide by the address that Keygate sees: behind a load balancer, name it with --trusted-proxies"
	if status, message := p.get("status"), p.get("message"); status != nil && status.Text != "403" || message != nil && message.Text != "" {
		why += "; a refusal is a 403 with the code address_not_allowed"
	}
	k.changed(p.at, p.label(), "%s", why)
	if l, _ := listsOf(p); l.Equal(nobody()) {
		k.changed(p.at, p.label(), "nobody may use them, as in Kong: its deny has all of its allow")
	}
}
