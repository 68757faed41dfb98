package moving_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/moving"
)

// model is a Kong that routes as its documentation says, written without a look at the package.
type model struct {
	services []modelService
	global   string // a plugin of everything, or ""
}

type modelService struct {
	plugin string
	path   string // of its URL
	routes []modelRoute
}

type modelRoute struct {
	name, plugin   string
	paths, methods []string
	hosts          []string
	header         bool
	strip          bool
}

// needs is what a request needs in Kong.
type needs int

const (
	nothing needs = iota
	someKey
	keyOfGroup // of consumers in the group staff
	more
)

// Plugins of the model that refuse by the address, and that respond in place of the service.
const listed, terminated = "ip-restriction", "request-termination"

func needsOf(plugin string) needs {
	return map[string]needs{"": nothing, "key-auth": someKey, "acl": keyOfGroup, "jwt": more, "odd": more}[plugin]
}

// file returns the model as a file of decK.
func (m *model) file() string {
	var b strings.Builder
	b.WriteString("_format_version: \"3.0\"\nservices:\n")
	plugins := func(indent, plugin string) {
		if plugin == "" {
			return
		}
		b.WriteString(indent + "plugins:\n")
		switch plugin {
		case "acl":
			b.WriteString(indent + "- name: key-auth\n" + indent + "- name: acl\n" + indent + "  config: {allow: [staff]}\n")
		case "odd":
			b.WriteString(indent + "- name: of-our-own\n")
		case listed:
			b.WriteString(indent + "- name: ip-restriction\n" + indent + "  config: {allow: [10.0.0.0/8, 192.0.2.0/24], deny: [192.0.0.0/16]}\n")
		default:
			b.WriteString(indent + "- name: " + plugin + "\n")
		}
	}
	for i, s := range m.services {
		fmt.Fprintf(&b, "- name: s%d\n  url: http://s%d.internal%s\n", i, i, s.path)
		plugins("  ", s.plugin)
		b.WriteString("  routes:\n")
		for _, r := range s.routes {
			fmt.Fprintf(&b, "  - name: %s\n    strip_path: %t\n", r.name, r.strip)
			for name, list := range map[string][]string{"paths": r.paths, "methods": r.methods, "hosts": r.hosts} {
				if len(list) > 0 {
					fmt.Fprintf(&b, "    %s: ['%s']\n", name, strings.Join(list, "', '"))
				}
			}
			if r.header {
				b.WriteString("    headers: {x-version: [\"2\"]}\n")
			}
			plugins("    ", r.plugin)
		}
	}
	plugins("", m.global)
	b.WriteString("consumers:\n- username: visitor\n  keyauth_credentials: [{key: " + visitorKey + "}]\n- username: clerk\n  acls: [{group: staff}]\n  keyauth_credentials: [{key: " + clerkKey + "}]\n")
	return b.String()
}

const visitorKey, clerkKey = "visitor-0123456789abcdef", "clerk-0123456789abcdef"

// found is a path of a route that matches a request.
type found struct {
	service              int
	path                 string // that the service gets
	bare                 bool   // that of the service alone, behind which Keygate may send a slash
	inside               bool   // only from an address of listed
	answered             bool   // by Kong
	needs                needs
	weight               int
	plain, regex, header bool
	loose                bool // what it matches is no template or hostname, so that it is not carried, and others get its requests
	length               int
}

// route returns what may happen to a request in Kong: of equal routes, the older one is taken, which the file does not say.
func (m *model) route(host, method, path string, header bool) (all []found) {
	best := []found{}
	for i, s := range m.services {
		for _, r := range s.routes {
			f := found{service: i, needs: needsOf(r.plugin)}
			// A plugin of the route replaces the one of the same name of the service; others add up.
			f.needs = max(f.needs, needsOf(s.plugin), needsOf(m.global))
			plugins := []string{r.plugin, s.plugin, m.global}
			f.inside, f.answered = slices.Contains(plugins, listed), slices.Contains(plugins, terminated)
			if len(r.hosts) > 0 {
				f.weight++
				if f.plain = slices.Contains(r.hosts, host); !f.plain && !(slices.Contains(r.hosts, "*.test") && strings.HasSuffix(host, ".test")) {
					continue
				}
			}
			f.loose = len(r.hosts) > 0 && (host == "localhost" || !f.plain)
			if r.header {
				if f.weight++; !header {
					continue
				}
				f.header = true
			}
			if len(r.methods) > 0 {
				if f.weight++; !slices.Contains(r.methods, method) {
					continue
				}
			}
			if len(r.paths) == 0 {
				f.path = s.path + path
				best = append(best, f)
				continue
			}
			f.weight++
			for _, p := range r.paths {
				one := f
				one.length, one.path = len(p), s.path+path
				taken := p
				one.loose = one.loose || slices.Contains(looseModelPaths, p)
				if expression, ok := strings.CutPrefix(p, "~"); ok {
					one.regex = true
					matched := regexp.MustCompile("^(?:" + expression + ")").FindStringIndex(path)
					if matched == nil {
						continue
					}
					taken = path[:matched[1]]
				} else if !strings.HasPrefix(path, p) {
					continue
				}
				if r.strip && taken != "/" {
					switch rest := strings.TrimPrefix(path, taken); {
					case rest != "":
						one.path = s.path + "/" + strings.TrimPrefix(rest, "/")
					case s.path == "" || strings.HasSuffix(path, "/"):
						one.path = s.path + "/"
					default:
						one.path, one.bare = s.path, true
					}
				}
				best = append(best, one)
			}
		}
	}
	less := func(a, b found) int {
		bit := func(v bool) int {
			if v {
				return 0
			}
			return 1
		}
		for _, c := range []int{b.weight - a.weight, bit(a.header) - bit(b.header), bit(a.plain) - bit(b.plain), bit(a.regex) - bit(b.regex), b.length - a.length} {
			if c != 0 {
				return c
			}
		}
		return 0
	}
	slices.SortStableFunc(best, less)
	for _, f := range best {
		if less(best[0], f) == 0 {
			all = append(all, f)
		}
	}
	return all
}

// made is what an import made.
type made struct {
	byHost map[string]*gateway.Tree[[]gateway.RouteSpec]
	docs   map[string]*gateway.Document
	scopes map[string]apikey.Scopes // by key
}

func readResult(t *rapid.T, r *moving.Result) *made {
	m := &made{byHost: map[string]*gateway.Tree[[]gateway.RouteSpec]{}, docs: map[string]*gateway.Document{}, scopes: map[string]apikey.Scopes{}}
	for _, f := range r.Files {
		if strings.HasPrefix(f.Name, "plans") {
			continue
		}
		d, err := gateway.ParseDocument(f.Content)
		if err != nil {
			t.Fatalf("%s: %v\n%s", f.Name, err, f.Content)
		}
		byPath := map[string]*[]gateway.RouteSpec{}
		builder := gateway.NewTreeBuilder[[]gateway.RouteSpec]()
		for _, route := range d.Routes {
			template, err := gateway.ParseTemplate(route.Path)
			if err != nil {
				t.Fatal(err)
			}
			list := byPath[template.Pattern()]
			if list == nil {
				list = &[]gateway.RouteSpec{}
				byPath[template.Pattern()] = list
				builder.Put(template, list)
			}
			*list = append(*list, route)
		}
		m.byHost[d.Gateway.Hostname.Value], m.docs[d.Gateway.Hostname.Value] = builder.Tree(), d
	}
	for _, k := range r.Keys {
		scopes, err := apikey.ParseScopes(k.Scope)
		if err != nil {
			t.Fatal(err)
		}
		m.scopes[k.SHA256] = scopes
	}
	return m
}

// forward returns where Keygate sends a request with a key, or without one for "", and with which path; -1 if it does not, or
// responds itself.
func (m *made) forward(t *rapid.T, host, method, path, key string, inside bool) (service int, to string) {
	if m.byHost[host] == nil {
		host = ""
	}
	if m.byHost[host] == nil {
		return -1, ""
	}
	allows := func(allow, deny []string) bool {
		list, err := addrlist.Compile(addrlist.Lists{Allow: allow, Deny: deny})
		if err != nil {
			t.Fatal(err)
		}
		return list.Allows(netip.MustParseAddr(map[bool]string{true: "10.1.2.3", false: "192.0.2.1"}[inside]))
	}
	g := &m.docs[host].Gateway
	list := m.byHost[host].Find(path)
	if list == nil || !allows(g.AllowIPs.Value, g.DenyIPs.Value) {
		return -1, ""
	}
	var route *gateway.RouteSpec
	for i := range *list {
		r := &(*list)[i]
		if slices.Contains(r.Methods, method) {
			route = r
			break
		}
		if method == "HEAD" && slices.Contains(r.Methods, "GET") {
			route = r
		}
	}
	if route == nil || route.Handling.Responds() {
		return -1, ""
	}
	if cmp.Or(route.Auth, gateway.DefaultAuth) == gateway.AuthKey {
		digest := sha256.Sum256([]byte(key))
		scopes, known := m.scopes[hex.EncodeToString(digest[:])]
		if !known || !scopes.Allows(method, path) {
			return -1, ""
		}
	}
	if h := route.Handling; h != nil {
		if !allows(h.AllowIPs, h.DenyIPs) {
			return -1, ""
		}
		path, _ = gateway.StripSegments(path, strings.Count(h.StripPrefix, "/"))
	}
	service, base := m.service(host, route.Upstream)
	return service, base + path
}

// service returns the number of the service that an upstream is, and its path.
func (m *made) service(host, upstream string) (n int, path string) {
	g := &m.docs[host].Gateway
	url := g.UpstreamURL.Value
	for _, u := range g.Upstreams.Value {
		if u.Name == upstream || upstream == "" && u.Name == gateway.DefaultUpstream {
			url = u.Targets.Value[0].URL
		}
	}
	if _, err := fmt.Sscanf(url, "http://s%d.internal", &n); err != nil {
		return -1, ""
	}
	_, path, _ = strings.Cut(url, ".internal")
	return n, path
}

var modelPaths = []string{
	"/", "/a", "/a/", "/a/b", "/ab", "/b", "/a/b/c", "~/a/[^/]+$", `~/a/\d+$`, "~/a/b", "~/[^/]+/b$", "~/a.c", `~/(?<one>[^/]+)/(?<two>\w+)/c$`, "~/b/.*", "~/a/(x|b)",
}

var looseModelPaths = []string{`~/a/\d+$`, "~/a.c", `~/(?<one>[^/]+)/(?<two>\w+)/c$`, "~/a/(x|b)"}

func drawModel(t *rapid.T) *model {
	plugins := rapid.SampledFrom([]string{"", "", "key-auth", "acl", "jwt", "odd", listed, terminated})
	m := &model{global: rapid.SampledFrom([]string{"", "", "", "", "key-auth", "jwt", listed}).Draw(t, "global")}
	n := 0
	for range rapid.IntRange(1, 3).Draw(t, "services") {
		s := modelService{plugin: plugins.Draw(t, "of the service"), path: rapid.SampledFrom([]string{"", "", "/s", "/a"}).Draw(t, "path of the service")}
		for range rapid.IntRange(1, 3).Draw(t, "routes") {
			n++
			r := modelRoute{name: fmt.Sprintf("r%d", n), plugin: plugins.Draw(t, "of the route"), strip: rapid.IntRange(0, 2).Draw(t, "strip") == 0, header: rapid.IntRange(0, 7).Draw(t, "header") == 0}
			r.paths = rapid.SliceOfNDistinct(rapid.SampledFrom(modelPaths), 0, 2, rapid.ID[string]).Draw(t, "paths")
			r.methods = rapid.SampledFrom([][]string{nil, nil, {"GET"}, {"POST", "GET"}, {"HEAD"}}).Draw(t, "methods")
			r.hosts = rapid.SampledFrom([][]string{nil, nil, nil, {"x.test"}, {"x.test", "y.test"}, {"*.test"}, {"localhost"}}).Draw(t, "hosts")
			s.routes = append(s.routes, r)
		}
		m.services = append(m.services, s)
	}
	return m
}

// Guarantee: edge.md, section 5: no request passes Keygate that needed more in Kong. One that needed a key needs one of the
// same consumers, one that needed an address of a list needs one, one that Kong itself responded to and one that needed anything
// else does not pass, and one that passes reaches the service that it reached, with the path that it had.
func TestNoRequestNeedsLess(t *testing.T) {
	hosts := []string{"x.test", "y.test", "z.test", "localhost", "other.example"}
	methods := []string{"GET", "POST", "HEAD", "DELETE"}
	paths := []string{"/", "/a", "/a/", "/a/b", "/a/b/", "/ab", "/abc", "/a/1", "/a/1x", "/a/x", "/a/b/c", "/a/bx", "/b", "/b/b", "/b/x/c", "/c", "/c/b", "/a.c", "/aXc", "/ab/c"}
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		file := m.file()
		deck, err := moving.ReadKong("kong.yaml", []byte(file))
		if err != nil {
			t.Fatalf("%v\n%s", err, file)
		}
		result, err := moving.Kong(deck)
		if err != nil {
			t.Fatalf("%v\n%s", err, file)
		}
		keygate := readResult(t, result)
		show := func() string {
			text := file + string(result.ReportText())
			for _, f := range result.Files {
				text += "--- " + f.Name + "\n" + string(f.Content)
			}
			return text
		}
		for _, host := range hosts {
			for _, method := range methods {
				for _, path := range paths {
					for _, header := range []bool{false, true} {
						checkRequest(t, m, keygate, host, method, path, header, show)
					}
				}
			}
		}
	})
}

func checkRequest(t *rapid.T, m *model, keygate *made, host, method, path string, header bool, show func() string) {
	may := m.route(host, method, path, header)
	for i, key := range []string{"", visitorKey, clerkKey, "", visitorKey, clerkKey} {
		inside := i < 3
		to, sent := keygate.forward(t, host, method, path, key, inside)
		if to < 0 {
			continue
		}
		passes := func(f found) bool { return passes(f.needs, key) && (inside || !f.inside) && !f.answered }
		request := fmt.Sprintf("%s %s of %s, header %t, key %q, inside %t", method, path, host, header, key, inside)
		if method == "HEAD" && len(may) == 0 {
			continue // Kong does not take HEAD for GET
		}
		if header && len(may) > 0 && may[0].header {
			// A route of a header is not carried: the request goes where it would without the header, if that needs no less.
			for _, f := range may {
				if !passes(f) {
					t.Fatalf("%s passes, and needed %d in Kong\n%s", request, f.needs, show())
				}
			}
			continue
		}
		if len(may) == 0 && key != "" && regexp.MustCompile("^/[^/]+/[^/]+(/c)?$").MatchString(path) && slices.ContainsFunc(m.services, usesClass) {
			continue // a template matches more than a class of characters, of callers with a key; the report says so
		}
		if len(may) == 0 {
			t.Fatalf("%s passes to s%d, and was a 404 in Kong\n%s", request, to, show())
		}
		reaches := false
		for _, f := range may {
			if !passes(f) {
				t.Fatalf("%s passes, and needed %d in Kong\n%s", request, f.needs, show())
			}
			isSent := f.path == sent || f.bare && f.path+"/" == sent
			reaches = reaches || f.service == to && isSent || f.loose
		}
		if !reaches {
			t.Fatalf("%s reaches s%d with %s, which it did not in Kong: %+v\n%s", request, to, sent, may, show())
		}
	}
}

// usesClass reports whether a service has a regular expression with a class of characters.
func usesClass(s modelService) bool {
	return slices.ContainsFunc(s.routes, func(r modelRoute) bool {
		return slices.ContainsFunc(r.paths, func(p string) bool { return strings.Contains(p, `\d`) || strings.Contains(p, `\w`) })
	})
}

// passes reports whether a key is enough.
func passes(n needs, key string) bool {
	switch n {
	case nothing:
		return true
	case someKey:
		return key != ""
	case keyOfGroup:
		return key == clerkKey
	}
	return false
}
